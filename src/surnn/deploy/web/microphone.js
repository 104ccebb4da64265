/* Runs in the audio thread: passes the microphone's samples to the page, 1024 at a time. */
class Microphone extends AudioWorkletProcessor {
  block = new Float32Array(1024);
  filled = 0;

  process([[channel]]) {
    if (!channel) return true; // no source yet
    this.block.set(channel, this.filled);
    this.filled += channel.length;
    if (this.filled === this.block.length) {
      this.port.postMessage(this.block);
      this.filled = 0;
    }
    return true;
  }
}

registerProcessor("microphone", Microphone);
