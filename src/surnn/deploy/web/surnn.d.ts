/** Streaming inference of selective-update recurrent networks. */

/** A file, an argument or a saved stream that the engine refused. */
export class SurnnError extends Error {}

/** Whether WebAssembly has SIMD here. */
export function hasSimd(): boolean;

export type Source = string | URL | Response | ArrayBuffer | ArrayBufferView;

export interface LoadOptions {
  /** Which version of the engine; by default the one with SIMD where the browser has it. */
  simd?: boolean;
  /** Where the engine's .wasm file is; by default next to this module. */
  engine?: Source;
}

/** Load a model: its address, or the content of a file that surnn.export.to_engine wrote. */
export function load(model: Source, options?: LoadOptions): Promise<Model>;

export interface Layer {
  readonly units: number;
  readonly gates: number;
  /** Components of the state; component 0 is the layer's output. */
  readonly components: number;
}

/** A trained model. It and its streams are released when nothing refers to them. */
export class Model {
  private constructor();
  /** Whether the input is tokens; otherwise it is frames. */
  readonly takesTokens: boolean;
  /** Numbers per frame, or size of the vocabulary. */
  readonly inputSize: number;
  /** Numbers per prediction. */
  readonly outputSize: number;
  readonly layers: readonly Layer[];
  /** Multiply-accumulates per time step with all gates open. */
  readonly macsPerStep: number;
  /** Bytes of a stream's state. */
  readonly streamSize: number;
  readonly simd: boolean;
  /** Bytes of the memory of the model and its streams. It grows, and does not shrink. */
  readonly memorySize: number;
  /** A new stream, at time step 0 with zero state. */
  stream(): Stream;
  /** Log-mel features of sound at 16 kHz, as the keyword models take it. */
  logMel(): LogMel;
}

/** The work that a stream has done. */
export interface Work {
  /** Time steps. */
  readonly steps: number;
  /** Multiply-accumulates with weights. */
  readonly macs: number;
  /** Multiply-accumulates with all gates open and nothing reused. */
  readonly dense: number;
  /** Updates of units of recurrent layers. */
  readonly updates: number;
  /** Updates with all gates open. */
  readonly denseUpdates: number;
  /** Share of the multiply-accumulates that were skipped. */
  readonly skipped: number;
  /** Share of units that updated, over time steps and recurrent layers. */
  readonly updateRate: number;
  /** The work done after `before`. */
  since(before: Work): Work;
}

/** The state of one sequence, made by {@link Model.stream}. */
export class Stream {
  private constructor();
  readonly model: Model;
  /** One time step: a frame of inputSize numbers, or a token, to outputSize numbers. */
  step(frame: ArrayLike<number> | number, out?: Float32Array): Float32Array;
  /** Many time steps: [T * inputSize] numbers or [T] tokens, to [T * outputSize] numbers. */
  run(frames: ArrayLike<number>): Float32Array;
  /** The work done since the stream was new or reset. */
  readonly work: Work;
  /** Time steps taken. */
  clock: number;
  /** The gates of a layer at the last time step: 1 is open. */
  gates(layer: number): Uint8Array;
  /** The state of a layer, one array per component. */
  hidden(layer: number): Float32Array[];
  /** Return to time step 0 with zero state. */
  reset(): void;
  /** A copy of the whole state. */
  save(): Uint8Array;
  /** Continue from a state that a stream of the same model and kind of engine saved. */
  restore(bytes: Uint8Array): void;
}

/** 320 samples (20 ms at 16 kHz) to 40 mel bands, made by {@link Model.logMel}. */
export class LogMel {
  private constructor();
  static readonly hop: 320;
  static readonly bands: 40;
  static readonly rate: 16000;
  /** The bands of the last 640 samples, 0 to 255: (ln(power + 1e-6) + 14) * 255 / 24. The first call
   * returns null: its samples are half a window. */
  push(samples: Int16Array): Uint8Array | null;
  /** Silence before the next sample. */
  reset(): void;
}
