/* The fuzz target without libFuzzer: damaged copies of seeds, and damaged copies of those that the
 * engine accepted. Included by engine_fuzz.c if SURNN_FUZZ_MAIN is defined.
 * usage: engine_fuzz RUNS SEED FILE... */

enum { MOST_FILES = 256, LARGEST = 1 << 16 };

typedef struct input {
    uint8_t *bytes;
    size_t size;
} input;

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) {
    (void)max_size;
    if (size) data[draw(size)] ^= (uint8_t)(1u << draw(8));
    return size;
}

static int read_input(const char *path, input *to) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    to->bytes = malloc(LARGEST);
    to->size = to->bytes ? fread(to->bytes, 1, LARGEST, file) : 0;
    fclose(file);
    return to->size > 0 && to->size < LARGEST;
}

static void keep(input *to, const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size);
    if (!copy) return;
    free(to->bytes);
    to->bytes = copy, to->size = size;
    memcpy(copy, bytes, size);
}

int main(int argc, char **argv) {
    static input seeds[MOST_FILES], accepted[MOST_FILES];
    static uint8_t bytes[LARGEST];
    size_t count = 0, ran = 0, refused = 0;
    if (argc < 4) return fprintf(stderr, "usage: %s RUNS SEED FILE...\n", argv[0]), 2;
    for (int i = 3; i < argc && count < MOST_FILES; i++, count++)
        if (!read_input(argv[i], &seeds[count])) return fprintf(stderr, "cannot read %s\n", argv[i]), 2;
    uint64_t runs = strtoull(argv[1], NULL, 10), number = strtoull(argv[2], NULL, 10) << 32 | 1;
    for (uint64_t i = 0; i < runs; i++, number++) {
        random_state = number * 0x9e3779b97f4a7c15u;
        size_t slot = draw(MOST_FILES);
        const input *from = draw(3) && accepted[slot].bytes ? &accepted[slot] : &seeds[draw(count)];
        size_t size = from->size;
        memcpy(bytes, from->bytes, size);
        size = LLVMFuzzerCustomMutator(bytes, size, LARGEST, (unsigned)number * 2654435761u);
        if (test_bytes(bytes, size)) {
            refused++;
        } else {
            ran++;
            if (draw(4) == 0) keep(&accepted[slot], bytes, size);
        }
    }
    for (size_t i = 0; i < MOST_FILES; i++) free(seeds[i].bytes), free(accepted[i].bytes);
    printf("ran: %zu\nrefused: %zu\n", ran, refused);
    return 0;
}
