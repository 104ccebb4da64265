/* From blocks of samples to words: front end, model, decision. `sound` is that of model.json. */

const PARTS = ["steps", "macs", "dense", "updates", "denseUpdates"];

/** The model's features of a stored band, for each of 256 values. */
export function featureTable({ mean, spread }) {
  return Float32Array.from({ length: 256 }, (_, stored) => ((stored * 24) / 255 - 14 - mean) / spread);
}

function softmax(scores) {
  const top = Math.max(...scores);
  const powers = Array.from(scores, (score) => Math.exp(score - top));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

/** Averages probabilities over some frames; a word is detected when its average rises over the
 * threshold, and was not over it for `pause` frames. */
class Detector {
  constructor(sound, classes) {
    Object.assign(this, { sound, classes });
    this.reset();
  }

  reset() {
    this.recent = [];
    this.last = this.classes.map(() => -Infinity);
    this.frame = 0;
  }

  push(probabilities, threshold) {
    const { average, pause } = this.sound;
    this.recent.push(probabilities);
    if (this.recent.length > average) this.recent.shift();
    const mean = this.classes.map((_, i) => this.recent.reduce((sum, p) => sum + p[i], 0) / average);
    const words = [];
    mean.forEach((value, i) => {
      if (this.sound.nothing.includes(i) || value <= threshold) return;
      if (this.frame - this.last[i] > pause) words.push({ word: this.classes[i], probability: value });
      this.last[i] = this.frame;
    });
    this.frame++;
    return { mean, words };
  }
}

/** Spots words in blocks of 320 samples. */
export class Spotter {
  constructor(model, sound, classes) {
    Object.assign(this, { model, sound, classes });
    this.threshold = sound.threshold;
    this.mel = model.logMel();
    this.stream = model.stream();
    this.table = featureTable(sound);
    this.features = new Float32Array(model.inputSize);
    this.scores = new Float32Array(model.outputSize);
    this.detector = new Detector(sound, classes);
    this.reset();
  }

  reset() {
    this.mel.reset();
    this.stream.reset();
    this.detector.reset();
    this.frames = 0;
    this.seconds = 0;
    this.before = Object.fromEntries(PARTS.map((part) => [part, 0])); // the work of clips before this one
  }

  /** The work since the beginning. */
  get work() {
    const now = this.stream.work;
    const sum = Object.fromEntries(PARTS.map((part) => [part, now[part] + this.before[part]]));
    return { ...sum, skipped: sum.dense ? 1 - sum.macs / sum.dense : 0 };
  }

  /** One block; null while the first window fills. */
  push(samples) {
    const begin = performance.now();
    const bands = this.mel.push(samples);
    if (!bands) return null;
    for (let i = 0; i < bands.length; i++) this.features[i] = this.table[bands[i]];
    this.stream.step(this.features, this.scores);
    const gates = this.model.layers.map((_, layer) => this.stream.gates(layer));
    const answer = this.decide();
    this.seconds += (performance.now() - begin) / 1000;
    this.frames++;
    return { bands, gates, ...answer };
  }

  /* The words at this frame, from this.scores. */
  decide(threshold = this.threshold) {
    const probabilities = softmax(this.scores);
    if (!this.sound.clip) return this.detector.push(probabilities, threshold);
    if (this.stream.clock < this.sound.clip) return { mean: probabilities, words: [] };
    this.before = this.work; // a model of clips: its answer is that at the end
    this.stream.reset();
    const best = probabilities.indexOf(Math.max(...probabilities));
    const heard = !this.sound.nothing.includes(best) && probabilities[best] > threshold;
    const words = heard ? [{ word: this.classes[best], probability: probabilities[best] }] : [];
    return { mean: probabilities, words };
  }
}
