/* The part of web.py that runs in the browser; it defines CLIPS and TURNS. */
import { load } from "./surnn.js";
import { Spotter } from "./spotter.js";
const fetched = async (name) => (await fetch(name)).arrayBuffer();

window.compareClips = async (simd, expected) => {
  const model = await load("model.surnn", { simd });
  const stream = model.stream();
  const [x, y] = [new Float32Array(await fetched("clips.bin")), new Float32Array(await fetched(expected))];
  const [clip, out] = [x.length / CLIPS, y.length / CLIPS];
  let [same, largest, decisions] = [0, 0, 0];
  for (let i = 0; i < CLIPS; i++) {
    stream.reset();
    const found = stream.run(x.subarray(i * clip, (i + 1) * clip));
    const wanted = y.subarray(i * out, (i + 1) * out);
    same += found.every((value, j) => value === wanted[j]);
    found.forEach((value, j) => { largest = Math.max(largest, Math.abs(value - wanted[j])); });
    const best = (all) => { const last = [...all.slice(-model.outputSize)]; return last.indexOf(Math.max(...last)); };
    decisions += best(found) === best(wanted);
  }
  return { clips: CLIPS, "same bits": same, "largest difference": largest, "same last answers": decisions };
};

window.timeSteps = async (name, simd) => {
  const model = await load(name, { simd });
  const x = new Float32Array(await fetched("stream.bin"));
  const [stream, out, frames] = [model.stream(), new Float32Array(model.outputSize), x.length / model.inputSize];
  const rows = Array.from({ length: frames }, (_, t) => x.subarray(t * model.inputSize, (t + 1) * model.inputSize));
  const turn = () => {
    stream.reset();
    const begin = performance.now();
    for (const row of rows) stream.step(row, out);
    return (1000 * (performance.now() - begin)) / frames;
  };
  turn();
  const times = Array.from({ length: TURNS }, turn).sort((a, b) => a - b);
  return { "microseconds a step": times[TURNS >> 1], "update rate": stream.work.updateRate, skipped: stream.work.skipped };
};

window.timePage = async (simd, sound, classes) => {
  const model = await load("model.surnn", { simd });
  const [spotter, mel] = [new Spotter(model, sound, classes), model.logMel()];
  const samples = new Int16Array(await fetched("sound.bin"));
  const blocks = Array.from({ length: samples.length / 320 }, (_, t) => samples.subarray(320 * t, 320 * t + 320));
  const turn = (push) => {
    const begin = performance.now();
    for (const block of blocks) push(block);
    return (1000 * (performance.now() - begin)) / blocks.length;
  };
  const median = (push, before) => {
    turn(push);
    return Array.from({ length: TURNS }, () => (before(), turn(push))).sort((a, b) => a - b)[TURNS >> 1];
  };
  const front = median((block) => mel.push(block), () => mel.reset());
  const all = median((block) => spotter.push(block), () => spotter.reset());
  return { "front end, microseconds a frame": front, "all, microseconds a frame": all,
           "real-time factor": all / 1e6 / 0.02, "update rate": spotter.stream.work.updateRate };
};

window.timeOnnx = async (name) => {
  const ort = await import("./ort/ort.wasm.min.mjs");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = new URL("./ort/", location.href).href;
  const session = await ort.InferenceSession.create(name, { executionProviders: ["wasm"] });
  const x = new Float32Array(await fetched("stream.bin"));
  const [input, ...states] = session.inputNames;
  const outputs = session.outputNames;
  const shapes = JSON.parse(await (await fetch(`${name}.json`)).text());
  const size = shapes[input].reduce((a, b) => a * b);
  const zeros = () => Object.fromEntries(states.map((s) => {
    const count = shapes[s].reduce((a, b) => a * b, 1);
    const values = s === "t" ? new BigInt64Array(count) : new Float32Array(count);
    return [s, new ort.Tensor(s === "t" ? "int64" : "float32", values, shapes[s])];
  }));
  const turn = async () => {
    let state = zeros();
    const begin = performance.now();
    for (let t = 0; t < 500; t++) {
      const frame = new ort.Tensor("float32", x.slice(t * size, (t + 1) * size), shapes[input]);
      const result = await session.run({ [input]: frame, ...state });
      state = Object.fromEntries(states.map((s, i) => [s, result[outputs[i + 1]]]));
    }
    return (1000 * (performance.now() - begin)) / 500;
  };
  await turn();
  const times = [];
  for (let i = 0; i < TURNS; i++) times.push(await turn());
  return { "microseconds a step": times.sort((a, b) => a - b)[TURNS >> 1] };
};
document.documentElement.dataset.ready = "yes";
