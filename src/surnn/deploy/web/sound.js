/* Sound as blocks of 16-bit samples at 16 kHz, from the microphone or from a file. */
import { LogMel } from "./surnn.js";

const CROSSINGS = 16; // of the filter's sinc, on each side
const PASS = 0.92; // of the lower half rate

/** Changes the sample rate of a stream, with a windowed sinc. */
export class Resampler {
  constructor(from, to = LogMel.rate) {
    const divisor = ((a, b) => { while (b) [a, b] = [b, a % b]; return a; })(from, to);
    this.up = to / divisor;
    this.down = from / divisor;
    const scale = PASS * Math.min(1, to / from);
    this.reach = Math.ceil(CROSSINGS / scale);
    this.filters = Array.from({ length: this.up }, (_, phase) => this.#filter(phase / this.up, scale));
    this.rest = new Float32Array(2 * this.reach);
    this.position = this.reach * this.up; // of the next output in `rest`, in units of 1 / up samples
  }

  /* The weights of the 2 * reach samples around an output. */
  #filter(offset, scale) {
    const weights = Float32Array.from({ length: 2 * this.reach }, (_, i) => {
      const x = (i - this.reach + 1 - offset) * scale;
      const edge = x / CROSSINGS;
      if (Math.abs(edge) >= 1) return 0;
      return (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x)) * (0.5 + 0.5 * Math.cos(Math.PI * edge));
    });
    const sum = weights.reduce((a, b) => a + b);
    return weights.map((w) => w / sum);
  }

  push(samples) {
    if (this.up === this.down) return samples;
    const all = new Float32Array(this.rest.length + samples.length);
    all.set(this.rest);
    all.set(samples, this.rest.length);
    const out = [];
    for (; ; this.position += this.down) {
      const first = Math.floor(this.position / this.up) - this.reach + 1;
      if (first + 2 * this.reach > all.length) break;
      const filter = this.filters[this.position % this.up];
      let sum = 0;
      for (let i = 0; i < filter.length; i++) sum += filter[i] * all[first + i];
      out.push(sum);
    }
    const used = Math.floor(this.position / this.up) - this.reach + 1;
    this.rest = all.slice(used);
    this.position -= used * this.up;
    return out;
  }
}

/** Cuts samples from -1 to 1 into blocks of 320 16-bit samples. */
export class Blocks {
  #block = new Int16Array(LogMel.hop);
  #filled = 0;

  constructor(onBlock) {
    this.onBlock = onBlock;
  }

  push(samples) {
    for (const sample of samples) {
      this.#block[this.#filled++] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
      if (this.#filled === LogMel.hop) {
        this.#filled = 0;
        this.onBlock(this.#block);
      }
    }
  }
}

/** Why the microphone cannot be used here, or "". */
export function microphoneProblem() {
  if (!globalThis.isSecureContext)
    return "Browsers give the microphone to pages from https:// or http://localhost only. Recordings work.";
  if (!navigator.mediaDevices?.getUserMedia) return "This browser has no microphone. Recordings work.";
  return "";
}

/** Calls onBlock with the microphone's sound until the returned function is called. */
export async function listen(onBlock) {
  const off = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  const media = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, ...off } });
  const context = new AudioContext();
  const stop = async () => {
    media.getTracks().forEach((track) => track.stop());
    await context.close();
  };
  try {
    await context.audioWorklet.addModule(new URL("./microphone.js", import.meta.url));
    const node = new AudioWorkletNode(context, "microphone", { channelCount: 1, channelCountMode: "explicit" });
    const resampler = new Resampler(context.sampleRate);
    const blocks = new Blocks(onBlock);
    node.port.onmessage = ({ data }) => blocks.push(resampler.push(data));
    context.createMediaStreamSource(media).connect(node);
    node.connect(context.destination); // its output is silence; without it some browsers stop
    await context.resume();
  } catch (error) {
    await stop();
    throw error;
  }
  return stop;
}

/** The samples of a recording at 16 kHz, mixed to one channel. */
export async function decode(bytes) {
  const context = new OfflineAudioContext(1, 1, LogMel.rate);
  const audio = await context.decodeAudioData(bytes);
  const channels = Array.from({ length: audio.numberOfChannels }, (_, c) => audio.getChannelData(c));
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, i) => channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length);
}
