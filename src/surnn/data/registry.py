"""The known data sets: files, addresses, checksums, licences and citations.

A checksum is entered only if several public sources agree on it. None means that none is published;
such a download is reported as not verified.
"""

from dataclasses import dataclass

from surnn.errors import SurnnError


class DataError(SurnnError):
    """A data set is missing, damaged or cannot be downloaded; the message says what to do."""


@dataclass(frozen=True)
class Remote:
    """A file to download: its name on disk, its addresses, its checksum."""

    name: str
    addresses: tuple[str, ...]
    size: int
    """Approximate number of bytes; the server's number takes precedence."""
    checksum: str | None = None
    """``md5:...`` or ``sha256:...``."""


@dataclass(frozen=True)
class Layout:
    """One form of a set in a folder: all of ``files`` (patterns) must exist."""

    kind: str
    files: tuple[str, ...]
    lacks: str = ""
    """The parts of the set that this form lacks, if any."""


@dataclass(frozen=True)
class DataSet:
    """A data set by its name on the command line."""

    name: str
    title: str
    licence: str
    citation: str
    remotes: tuple[Remote, ...]
    layouts: tuple[Layout, ...]
    folders: tuple[str, ...] = ()
    """Sub-folders to search, besides the folder itself and the one with the set's name."""
    unpack: tuple[str, ...] = ()
    """Members of a large archive (ends of their names) to unpack into the first of ``folders``; the
    archive is deleted afterwards."""

    @property
    def size(self) -> int:
        return sum(remote.size for remote in self.remotes)


_MNIST = (
    ("train-images-idx3-ubyte.gz", 9_912_422, "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("train-labels-idx1-ubyte.gz", 28_881, "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    ("t10k-images-idx3-ubyte.gz", 1_648_877, "md5:9fb629c4189551a2d022fa330f9573f3"),
    ("t10k-labels-idx1-ubyte.gz", 4_542, "md5:ec29112dd5afa0611ce80d1b7f02629c"),
)
_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_CIFAR = "cifar-10-batches-py/"
_NOISE = tuple(
    f"{name}.wav"
    for name in (
        "white_noise", "pink_noise", "doing_the_dishes", "dude_miaowing", "exercise_bike",
        "running_tap",
    )
)  # fmt: skip
_AAN = tuple(f"new_aan_pairs.{split}.tsv" for split in ("train", "eval", "test"))


def _wikitext(
    name: str, version: str, size: int, sha256: str, *more: Layout, form: str = "raw"
) -> DataSet:
    folder = f"wikitext-{version}-raw" if form == "raw" else f"wikitext-{version}"
    archive = f"{folder}-v1.zip"
    return DataSet(
        name=name,
        title=f"WikiText-{version}, {form}",
        licence="CC BY-SA 3.0",
        citation="Merity et al., Pointer Sentinel Mixture Models, ICLR 2017",
        remotes=(
            Remote(
                archive,
                (
                    f"https://wikitext.smerity.com/{archive}",
                    f"https://s3.amazonaws.com/research.metamind.io/wikitext/{archive}",
                ),
                size,
                f"sha256:{sha256}",
            ),
        ),
        layouts=(
            Layout("archive", (archive,)),
            Layout("folder", tuple(f"wiki.{s}.{form}" for s in ("train", "valid", "test"))),
            *more,
        ),
        folders=(folder,),
    )


def _speech_commands(version: str, size: int, checksum: str) -> Remote:
    archive = f"speech_commands_v0.0{version}.tar.gz"
    mirrors = (
        "https://storage.googleapis.com/download.tensorflow.org/data/",
        "http://download.tensorflow.org/data/",
    )
    return Remote(archive, tuple(mirror + archive for mirror in mirrors), size, checksum)


_ALL = (
    DataSet(
        name="mnist",
        title="MNIST handwritten digits",
        licence="CC BY-SA 3.0",
        citation="LeCun et al., Gradient-based learning applied to document recognition, 1998",
        remotes=tuple(
            Remote(name, tuple(mirror + name for mirror in _MNIST_MIRRORS), size, checksum)
            for name, size, checksum in _MNIST
        ),
        layouts=(
            Layout("idx", tuple(name for name, _, _ in _MNIST)),
            Layout("idx", tuple(name.removesuffix(".gz") for name, _, _ in _MNIST)),
            Layout("npz", ("mnist.npz",)),
        ),
        folders=("MNIST/raw",),
    ),
    DataSet(
        name="cifar10",
        title="CIFAR-10 images",
        licence="none stated",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        remotes=(
            Remote(
                "cifar-10-python.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
                170_498_071,
                "md5:c58f30108f718f92721af3b95e74349a",
            ),
        ),
        layouts=(
            Layout("archive", ("cifar-10-python.tar.gz",)),
            Layout(
                "folder",
                (*(f"{_CIFAR}data_batch_{i}" for i in range(1, 6)), f"{_CIFAR}test_batch"),
            ),
            Layout("webp", ("cifar10_rgb_webp_a.npz", "cifar10_rgb_webp_b.npz")),
        ),
    ),
    DataSet(
        name="imdb",
        title="IMDB reviews (aclImdb), of LRA Text",
        licence="none stated",
        citation="Maas et al., Learning word vectors for sentiment analysis, ACL 2011",
        remotes=(
            Remote(
                "aclImdb_v1.tar.gz",
                ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
                84_125_825,
                "md5:7c2ac02c03563afcf9b574c7e56c153a",
            ),
        ),
        layouts=(
            Layout("packed", ("imdb_bytes.npz.xz",)),
            Layout("archive", ("aclImdb_v1.tar.gz",)),
            Layout("folder", ("aclImdb",)),
        ),
    ),
    DataSet(
        name="aan",
        title="ACL Anthology Network pairs, of LRA Retrieval",
        licence="see the ACL Anthology Network",
        citation="Radev et al., The ACL Anthology Network corpus, 2013; Tay et al., LRA, ICLR 2021",
        remotes=(
            Remote(  # LRA's own address; some users get a 403 there in 2026
                "lra_release.gz",
                ("https://storage.googleapis.com/long-range-arena/lra_release.gz",),
                7_700_000_000,
            ),
        ),
        layouts=(Layout("folder", _AAN),),
        folders=("tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data"),
        unpack=_AAN,
    ),
    _wikitext(
        "wikitext103",
        "103",
        191_984_949,
        "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794",
    ),
    _wikitext(
        "wikitext2",
        "2",
        4_721_645,
        "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
        Layout("packed", ("wikitext2_valid_test_only.tar.xz",), lacks="the training split"),
    ),
    _wikitext(
        "wikitext2_tokens",
        "2",
        4_475_746,
        "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
        Layout("packed", ("wikitext2_tokens.tar.xz",)),
        form="tokens",
    ),
    DataSet(
        name="enwik8",
        title="enwik8, the first 100 MB of Wikipedia",
        licence="GFDL, CC BY-SA",
        citation="Mahoney, Large text compression benchmark, 2006",
        remotes=(
            Remote(
                "enwik8.zip",
                ("https://mattmahoney.net/dc/enwik8.zip", "http://mattmahoney.net/dc/enwik8.zip"),
                36_445_475,
                "sha256:547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
            ),
        ),
        layouts=(
            Layout("plain", ("enwik8",)),
            Layout("archive", ("enwik8.zip",)),
            Layout("xz", ("enwik8.xz",)),
        ),
    ),
    DataSet(
        name="fsdd",
        title="Free Spoken Digit Dataset",
        licence="CC BY-SA 4.0",
        citation="Jackson et al., Free Spoken Digit Dataset v1.0.10, 2020",
        remotes=(
            Remote(
                "free-spoken-digit-dataset-1.0.10.tar.gz",
                (
                    "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/"
                    "v1.0.10.tar.gz",
                ),
                16_000_000,
            ),
        ),
        layouts=(
            Layout("packed", ("fsdd_8k_int16.npz.xz",)),
            Layout("archive", ("free-spoken-digit-dataset-*.tar.gz",)),
            Layout("folder", ("recordings",)),
        ),
        folders=("free-spoken-digit-dataset", "free-spoken-digit-dataset-1.0.10"),
    ),
    DataSet(
        name="speech_commands",
        title="Speech Commands, one-second clips of single words",
        licence="CC BY 4.0",
        citation="Warden, Speech Commands, arXiv:1804.03209, 2018",
        remotes=(
            _speech_commands(
                "1",
                1_489_096_277,
                "sha256:743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d",
            ),
        ),
        layouts=(
            Layout("archive", ("speech_commands_v0.01.tar.gz",)),
            Layout("archive", ("speech_commands_v0.02.tar.gz",)),
            Layout("folder", ("testing_list.txt", "validation_list.txt", "yes", "go")),
            Layout(
                "packed",
                ("gsc_v001_logmel_u8_core10.npz.xz", "gsc_v001_logmel_u8_others8000.npz.xz"),
                lacks="four in five clips of the words that are no commands",
            ),
        ),
        folders=tuple(
            f"{folder}speech_commands_v0.0{version}"
            for folder in ("", "SpeechCommands/")
            for version in (1, 2)
        ),
    ),
    DataSet(
        name="speech_commands_noise",
        title="Background noise of Speech Commands",
        licence="CC BY 4.0",
        citation="Warden, Speech Commands, arXiv:1804.03209, 2018",
        remotes=(_speech_commands("2", 2_428_923_189, "md5:6b74f3901214cb2c2934e98196829835"),),
        layouts=(
            Layout("folder", _NOISE),
            Layout("packed", ("speechcommands_background_noise.tar.xz",)),
            Layout("archive", ("speech_commands_v0.01.tar.gz",)),
            Layout("archive", ("speech_commands_v0.02.tar.gz",)),
        ),
        folders=(
            "_background_noise_",
            "SpeechCommands/speech_commands_v0.02/_background_noise_",
            "SpeechCommands/speech_commands_v0.01/_background_noise_",
            "speech_commands_v0.01/_background_noise_",
            "speech_commands_v0.02/_background_noise_",
            "speech_commands",
        ),
        unpack=tuple(f"_background_noise_/{name}" for name in _NOISE),
    ),
    DataSet(
        name="mitbih",
        title="MIT-BIH arrhythmia database",
        licence="ODC-By 1.0",
        citation="Moody and Mark, The impact of the MIT-BIH arrhythmia database, 2001",
        remotes=(
            Remote(
                "mit-bih-arrhythmia-database-1.0.0.zip",
                (
                    "https://physionet.org/static/published-projects/mitdb/"
                    "mit-bih-arrhythmia-database-1.0.0.zip",
                ),
                77_000_000,
            ),
        ),
        layouts=(
            Layout("archive", ("mit-bih-arrhythmia-database-1.0.0.zip",)),
            Layout("folder", ("100.hea", "100.dat", "100.atr")),
            Layout("packed", ("mitbih_lead0_delta.npz.xz",)),
        ),
        folders=("mit-bih-arrhythmia-database-1.0.0", "mitdb"),
    ),
)

SETS: dict[str, DataSet] = {entry.name: entry for entry in _ALL}


def look_up(name: str) -> DataSet:
    """The entry of this name."""
    if name not in SETS:
        raise DataError(f"there is no data set {name!r}; known are {', '.join(SETS)}")
    return SETS[name]
