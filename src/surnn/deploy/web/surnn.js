/* Streaming inference of selective-update recurrent networks: surnn's engine as WebAssembly.
 * surnn.d.ts has the types. It needs a browser, Deno or Node 18, and no other package. */

/** A file, an argument or a saved stream that the engine refused. */
export class SurnnError extends Error {
  name = "SurnnError";
}

/* A module that contains one SIMD instruction: (func (drop (i8x16.splat (i32.const 0)))) */
const SIMD_PROBE = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
]);

/** Whether WebAssembly has SIMD here. */
export function hasSimd() {
  return WebAssembly.validate(SIMD_PROBE);
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (typeof Response !== "undefined" && source instanceof Response) return responseBytes(source, source.url);
  const url = new URL(source, globalThis.document?.baseURI ?? import.meta.url);
  if (url.protocol === "file:" && globalThis.process?.versions?.node) {
    const { readFile } = await import(/* @vite-ignore */ "node:fs/promises");
    return new Uint8Array(await readFile(url));
  }
  return responseBytes(await fetch(url), url);
}

async function responseBytes(response, name) {
  if (!response.ok) throw new SurnnError(`${name}: the server answered ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

const compiled = new Map();

/* The compiled engine; each kind is loaded once, and again if that failed. */
function engine(simd, source) {
  if (source !== undefined) return bytesOf(source).then((bytes) => WebAssembly.compile(bytes));
  if (!compiled.has(simd)) {
    const url = simd ? new URL("./surnn-simd.wasm", import.meta.url) : new URL("./surnn-scalar.wasm", import.meta.url);
    const module = bytesOf(url).then((bytes) => WebAssembly.compile(bytes));
    module.catch(() => compiled.delete(simd));
    compiled.set(simd, module);
  }
  return compiled.get(simd);
}

/** Load a model: an address, a Response, or the bytes of a file that surnn.export.to_engine wrote. */
export async function load(source, { simd = hasSimd(), engine: place } = {}) {
  const [bytes, module] = await Promise.all([bytesOf(source), engine(simd, place)]);
  return new Model(await WebAssembly.instantiate(module, {}), bytes, simd);
}

/** The engine's memory, its functions, and their errors. */
class Core {
  constructor(instance) {
    this.f = instance.exports;
  }
  /* Views are made anew: they end when the memory grows. */
  bytes(at, count) {
    return new Uint8Array(this.f.memory.buffer, at, count);
  }
  floats(at, count) {
    return new Float32Array(this.f.memory.buffer, at, count);
  }
  words(at, count) {
    return new Uint32Array(this.f.memory.buffer, at, count);
  }
  longs(at, count) {
    return Array.from(new BigUint64Array(this.f.memory.buffer, at, count), Number);
  }
  allocate(size) {
    const at = this.f.malloc(size); // a multiple of 16
    if (!at) throw new SurnnError(`out of memory: the engine asked for ${size} bytes`);
    return at;
  }
  text(at) {
    const bytes = this.bytes(at, this.f.memory.buffer.byteLength - at);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }
  check(status, context) {
    if (status) throw new SurnnError(`${context}: ${this.text(this.f.surnn_message(status))}`);
  }
  /* A pointer that a function stores. */
  pointer(call, context) {
    const slot = this.allocate(4);
    try {
      this.check(call(slot), context);
      return this.words(slot, 1)[0];
    } finally {
      this.f.free(slot);
    }
  }
}

/** A model, in a memory of its own. It and its streams are released when nothing refers to them. */
export class Model {
  #core;
  #model;

  constructor(instance, file, simd) {
    const core = (this.#core = new Core(instance));
    const begin = Math.ceil(core.allocate(file.length + 64) / 64) * 64;
    core.bytes(begin, file.length).set(file);
    this.#model = core.pointer((slot) => core.f.surnn_open(begin, file.length, slot), "the model");
    const info = core.allocate(64);
    core.f.surnn_describe(this.#model, info);
    const [tokens, input, output, layers] = core.words(info, 4);
    const [, state, , , macs] = core.longs(info + 16, 5);
    core.f.free(info);
    this.takesTokens = tokens === 1;
    this.inputSize = input;
    this.outputSize = output;
    this.layers = Array.from({ length: layers }, (_, layer) => this.#layer(layer));
    this.macsPerStep = macs;
    this.streamSize = state;
    this.simd = simd;
    Object.freeze(this);
  }

  #layer(layer) {
    const core = this.#core;
    const at = core.allocate(12);
    core.check(core.f.surnn_describe_layer(this.#model, layer, at), `layer ${layer}`);
    const [units, gates, components] = core.words(at, 3);
    core.f.free(at);
    return Object.freeze({ units, gates, components });
  }

  /** Bytes of the engine's memory: the model and its streams. */
  get memorySize() {
    return this.#core.f.memory.buffer.byteLength;
  }

  /** A new stream, at time step 0 with zero state. */
  stream() {
    return new Stream(this, this.#core, this.#model);
  }

  /** Log-mel features of sound at 16 kHz, as the keyword models take it. */
  logMel() {
    return new LogMel(this.#core);
  }
}

/** The work that a stream has done, or the difference of two. */
class Work {
  constructor([steps, macs, dense, updates, denseUpdates]) {
    Object.assign(this, { steps, macs, dense, updates, denseUpdates });
    Object.freeze(this);
  }
  get skipped() {
    return this.dense ? 1 - this.macs / this.dense : 0;
  }
  get updateRate() {
    return this.denseUpdates ? this.updates / this.denseUpdates : 0;
  }
  since(before) {
    return new Work(["steps", "macs", "dense", "updates", "denseUpdates"].map((k) => this[k] - before[k]));
  }
}

const released = new FinalizationRegistry(({ core, stream, memory }) => {
  core.f.surnn_stream_free(stream);
  core.f.free(memory);
});

const releasedMel = new FinalizationRegistry(({ core, memory }) => core.f.free(memory));

/** The state of one sequence. */
export class Stream {
  #core;
  #pointer;
  #stream;
  #memory; // for the arguments and results of a call
  #room = 0;
  #held;

  constructor(model, core, pointer) {
    this.model = model;
    this.#core = core;
    this.#pointer = pointer;
    this.#stream = core.pointer((slot) => core.f.surnn_stream_new(pointer, slot), "a new stream");
    this.#reserve(4 * (1 + model.outputSize));
  }

  /* Memory for a call; it stays for the next one. */
  #reserve(size) {
    if (size > this.#room) {
      const memory = this.#core.allocate(size);
      if (this.#held) {
        released.unregister(this.#held);
        this.#core.f.free(this.#memory);
      }
      this.#memory = memory;
      this.#room = size;
      this.#held = {};
      released.register(this, { core: this.#core, stream: this.#stream, memory }, this.#held);
    }
    return this.#memory;
  }

  #call(frames, steps, step) {
    const { takesTokens, inputSize, outputSize } = this.model;
    const core = this.#core;
    const [kind, each] = takesTokens ? ["tokens", 1] : ["numbers", inputSize];
    const values = typeof frames === "number" ? [frames] : frames;
    if (values.length !== steps * each) {
      const often = step ? "" : " a time step";
      throw new RangeError(`this model takes ${each} ${kind}${often}, got ${values.length}`);
    }
    if (takesTokens && Array.prototype.some.call(values, (v) => !(Number.isInteger(v) && v >= 0 && v < inputSize))) {
      throw new RangeError(`tokens are integers from 0 to ${inputSize - 1}`);
    }
    const input = this.#reserve(4 * (values.length + steps * outputSize));
    const output = input + 4 * values.length;
    (takesTokens ? core.words(input, values.length) : core.floats(input, values.length)).set(values);
    const name = `surnn_${step ? "step" : "run"}${takesTokens ? (step ? "_token" : "_tokens") : ""}`;
    const first = takesTokens && step ? values[0] : input;
    const rest = step ? [output] : [steps, output];
    core.check(core.f[name](this.#pointer, this.#stream, first, ...rest), step ? "step" : "run");
    return core.floats(output, steps * outputSize);
  }

  /** One time step: a frame of inputSize numbers, or a token, to outputSize numbers. */
  step(frame, out = new Float32Array(this.model.outputSize)) {
    out.set(this.#call(frame, 1, true));
    return out;
  }

  /** Many time steps at once: frames one after another, to predictions one after another. */
  run(frames) {
    const each = this.model.takesTokens ? 1 : this.model.inputSize;
    return this.#call(frames, Math.floor(frames.length / each), false).slice();
  }

  /** The work done since the stream was new or reset. */
  get work() {
    const core = this.#core;
    const at = this.#reserve(40);
    core.f.surnn_work_done(this.#pointer, this.#stream, at);
    return new Work(core.longs(at, 5));
  }

  /** The clock: time steps taken. */
  get clock() {
    return Number(this.#core.f.surnn_clock(this.#stream));
  }
  set clock(t) {
    if (!Number.isSafeInteger(t)) throw new RangeError(`a clock is an integer, got ${t}`);
    this.#core.check(this.#core.f.surnn_set_clock(this.#pointer, this.#stream, BigInt(t)), `clock ${t}`);
  }

  /** The gates of a layer at the last time step: 1 is open. */
  gates(layer) {
    const count = this.#layer(layer).gates;
    const at = this.#reserve(count);
    this.#core.check(this.#core.f.surnn_gates(this.#pointer, this.#stream, layer, at), `layer ${layer}`);
    return this.#core.bytes(at, count).slice();
  }

  /** The state of a layer: component 0 is its output. */
  hidden(layer) {
    const { units, components } = this.#layer(layer);
    const at = this.#reserve(4 * units * components);
    this.#core.check(this.#core.f.surnn_hidden(this.#pointer, this.#stream, layer, at), `layer ${layer}`);
    const values = this.#core.floats(at, units * components).slice();
    return Array.from({ length: components }, (_, c) => values.subarray(c * units, (c + 1) * units));
  }

  #layer(layer) {
    const known = this.model.layers[layer];
    if (!known) throw new RangeError(`the model has layers 0 to ${this.model.layers.length - 1}, got ${layer}`);
    return known;
  }

  /** Return to time step 0 with zero state. */
  reset() {
    this.#core.check(this.#core.f.surnn_reset(this.#pointer, this.#stream), "reset");
  }

  /** A copy of the whole state, for restore() of a stream of the same model and kind of engine. */
  save() {
    const size = this.model.streamSize;
    const at = this.#reserve(size);
    this.#core.check(this.#core.f.surnn_save(this.#pointer, this.#stream, at, size), "save");
    return this.#core.bytes(at, size).slice();
  }

  /** Continue from a saved state. */
  restore(bytes) {
    const at = this.#reserve(bytes.length);
    this.#core.bytes(at, bytes.length).set(bytes);
    this.#core.check(this.#core.f.surnn_restore(this.#pointer, this.#stream, at, bytes.length), "restore");
  }
}

const HOP = 320;
const BANDS = 40;

/** The engine's front end: 320 samples (20 ms at 16 kHz) to 40 mel bands, in integers. */
export class LogMel {
  static hop = HOP;
  static bands = BANDS;
  static rate = 16000;
  #core;
  #mel;
  #samples;

  constructor(core) {
    this.#core = core;
    this.#mel = core.allocate(4096);
    this.#samples = this.#mel + 3264; // past struct surnn_mel
    releasedMel.register(this, { core, memory: this.#mel });
    this.reset();
  }

  /** The bands of the last 640 samples, 0 to 255; null for the first call, which has half of them. */
  push(samples) {
    if (samples.length !== HOP) throw new RangeError(`expected ${HOP} samples, got ${samples.length}`);
    if (!(samples instanceof Int16Array) && Array.prototype.some.call(samples, (v) => (v << 16) >> 16 !== v)) {
      throw new RangeError("samples are integers from -32768 to 32767; multiply those from -1 to 1 by 32767 and round them");
    }
    new Int16Array(this.#core.f.memory.buffer, this.#samples, HOP).set(samples);
    const bands = this.#samples + 2 * HOP;
    return this.#core.f.surnn_mel_push(this.#mel, this.#samples, bands) ? this.#core.bytes(bands, BANDS).slice() : null;
  }

  /** Silence before the next sample. */
  reset() {
    this.#core.bytes(this.#mel, 4096).fill(0);
  }
}
