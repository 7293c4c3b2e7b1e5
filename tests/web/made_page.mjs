// SPDX-License-Identifier: Apache-2.0
//
// Pages made up for tests: packs a step as src/report/page_data.h says, and puts web/ together as
// cmake/embed_web.cmake and src/report/page.cc do. So the page can be tested without the program.
//
// usage: node made_page.mjs PAGE.html TASK_COUNT   writes a page with so many made-up tasks
import { deflateSync } from 'node:zlib';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const kWeb = new URL('../../web/', import.meta.url);
// As the build joins them: each after those that it imports.
const kBuild = readFileSync(new URL('../../src/report/CMakeLists.txt', import.meta.url), 'utf8');
const kModules = kBuild.match(/set\(web_modules\s+([^)]*)\)/)[1].split(/\s+/);
export const kCauses = ['startup', 'dependency (same kind)', 'dependency (other kind)',
  'dependency (submit)', 'placement', 'completion', 'scheduler', 'propagation', 'setup',
  'imbalance', 'drain'];
export const kPathParts = ['run', 'startup', 'completion', 'scheduler', 'handoff', 'core busy',
  'end', 'submit'];

// ---- packing ----

class ColumnWriter {
  bytes = [];

  put(value) {
    while (value >= 128) {
      this.bytes.push((value % 128) + 128);
      value = Math.floor(value / 128);
    }
    this.bytes.push(value);
  }

  put_signed(value) {
    this.put(value < 0 ? -2 * value - 1 : 2 * value);
  }

  column(values) {
    for (const value of values) this.put(value);
  }
}

// Gaps of ranges on their lane: each since the end of the one before.
function gaps_of(items, lane_of, begin_of) {
  let last_lane = -1;
  let last_end = 0;
  return items.map((item) => {
    if (lane_of(item) !== last_lane) last_end = 0;
    last_lane = lane_of(item);
    const gap = begin_of(item) - last_end;
    last_end = item.end;
    return gap;
  });
}

function put_tasks(writer, tasks) {
  writer.column(gaps_of(tasks, (task) => task.core, (task) => task.start));
  writer.column(tasks.map((task) => task.end - task.start));
  writer.column(tasks.map((task) => task.kernel));
  tasks.forEach((task, i) => writer.put_signed(task.id - (i === 0 ? 0 : tasks[i - 1].id)));
  for (const name of ['submit', 'ready', 'dispatch', 'receive', 'finish']) {
    for (const task of tasks) {
      const at = task[name];
      const difference = name === 'finish' ? at - task.end : task.start - at;
      if (at === undefined) writer.put(0);
      else writer.put(1 + (difference < 0 ? -2 * difference - 1 : 2 * difference));
    }
  }
  writer.column(tasks.map((task) => task.layer));
  writer.column(tasks.map((task) => task.producers.length));
}

function put_levels(writer, step, levels) {
  for (const bucket_count of levels) {
    const bucket_ns = Math.ceil(step.window_ns / bucket_count);
    const cells = step.cores.length * bucket_count;
    const [busy, kernel, cause] = [0, 1, 2].map(() => new Array(cells).fill(0));
    const longest = new Map();
    const add = (core, begin, end, key, visit) => {
      for (let at = Math.floor(begin / bucket_ns); at * bucket_ns < end; ++at) {
        const part = Math.min(end, (at + 1) * bucket_ns) - Math.max(begin, at * bucket_ns);
        const cell = core * bucket_count + at;
        const name = `${cell} ${key}`;
        longest.set(name, (longest.get(name) ?? 0) + part);
        visit(cell, part, longest.get(name), (other) => longest.get(`${cell} ${other}`) ?? 0);
      }
    };
    for (const task of step.tasks) {
      add(task.core, task.start, task.end, `k${task.kernel + 1}`, (cell, part, sum, of) => {
        busy[cell] += part;
        if (sum > of(`k${kernel[cell]}`) || kernel[cell] === 0) kernel[cell] = task.kernel + 1;
      });
    }
    for (const bubble of step.bubbles) {
      add(bubble.core, bubble.begin, bubble.end, `c${bubble.cause + 1}`, (cell, part, sum, of) => {
        if (sum > of(`c${cause[cell]}`) || cause[cell] === 0) cause[cell] = bubble.cause + 1;
      });
    }
    writer.column(busy.map((ns, cell) => {
      const begin = (cell % bucket_count) * bucket_ns;
      return Math.round(255 * ns / Math.max(1, Math.min(bucket_ns, step.window_ns - begin)));
    }));
    writer.column(kernel);
    writer.column(cause);
  }
}

// step: window_ns, cores [{name, kind}], lanes [{name, kind}], kernels, span_names, tasks (by core
// and start; producers are their numbers), bubbles, path [{part, length, task}], spans, report.
export function pack_step(step, { levels = [8], title = 'made' } = {}) {
  const writer = new ColumnWriter();
  put_tasks(writer, step.tasks);
  step.tasks.forEach((task, number) => {
    for (const producer of task.producers) writer.put_signed(number - producer);
  });
  writer.column(gaps_of(step.bubbles, (bubble) => bubble.core, (bubble) => bubble.begin));
  writer.column(step.bubbles.map((bubble) => bubble.end - bubble.begin));
  writer.column(step.bubbles.map((bubble) => bubble.cause));
  writer.column(step.path.map((part) => part.part));
  writer.column(step.path.map((part) => part.length));
  writer.column(step.path.map((part) => part.task + 1));
  let last = null;
  for (const span of step.spans) {
    writer.put_signed(span.begin - (last?.lane === span.lane ? last.begin : 0));
    last = span;
  }
  writer.column(step.spans.map((span) => span.end - span.begin));
  writer.column(step.spans.map((span) => span.name));
  writer.column(step.spans.map((span) => span.depth));
  put_levels(writer, step, levels);
  const count_on = (items, key, lane) => items.filter((item) => item[key] === lane).length;
  const edge_count = step.tasks.reduce((sum, task) => sum + task.producers.length, 0);
  const bytes = Uint8Array.from(writer.bytes);
  return {
    title, window_ns: step.window_ns, core_count: step.cores.length,
    task_count: step.tasks.length, edge_count, edges_left_out: 0,
    bubble_count: step.bubbles.length, path_count: step.path.length,
    span_count: step.spans.length, spans_left_out: 0,
    cores: step.cores.map((core, i) => ({ ...core, task_count: count_on(step.tasks, 'core', i),
      bubble_count: count_on(step.bubbles, 'core', i) })),
    lanes: step.lanes.map((lane, i) => ({ ...lane, span_count: count_on(step.spans, 'lane', i) })),
    kernels: step.kernels, span_names: step.span_names, causes: kCauses, path_parts: kPathParts,
    levels, bytes: bytes.length, columns: deflateSync(bytes).toString('base64'),
    report: step.report,
  };
}

// ---- making up ----

// Numbers 0..1, the same in each run.
export function make_random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  };
}

const kMadeKernels = ['gate_up', 'attention', 'qkv_proj', 'down_proj', 'norm', 'rope'];

// Cores that run one task after another with short pauses; every task needs earlier ones.
export function make_step({ task_count = 400, core_count = 8, seed = 1 } = {}) {
  const random = make_random(seed);
  const cores = Array.from({ length: core_count }, (none, i) => (i * 3 < core_count
    ? { name: `cube ${i}`, kind: 'cube' } : { name: `vector ${i}`, kind: 'vector' }));
  const tasks = [];
  for (let core = 0; core < core_count; ++core) {
    let time = 500;
    const count = Math.floor((core + 1) * task_count / core_count) -
      Math.floor(core * task_count / core_count);
    for (let i = 0; i < count; ++i) {
      const start = time + Math.floor(random() * 4000) + 300;
      const end = start + 1000 + Math.floor(random() ** 3 * 30000);
      const kernel = Math.floor(random() ** 2 * kMadeKernels.length);
      tasks.push({ core, start, end, kernel, id: i * core_count + core, layer: Math.floor(i / 10),
        submit: 0, ready: start - 250, dispatch: start - 200, receive: start - 90,
        finish: end + 120, producers: [] });
      time = end;
    }
  }
  return complete_step({ cores, tasks, random });
}

function complete_step({ cores, tasks, random }) {
  const window_ns = tasks.reduce((last, task) => Math.max(last, task.end), 0) + 200;
  const per_core = Math.floor(tasks.length / cores.length);
  tasks.forEach((task, number) => {
    for (let i = 0; i < 3; ++i) {
      const producer = Math.floor(random() * cores.length) * per_core + (number % per_core) - 1;
      const is_earlier = tasks[producer] && tasks[producer].end <= task.start;
      if (is_earlier && !task.producers.includes(producer)) task.producers.push(producer);
    }
  });
  const bubbles = [];
  cores.forEach((core, index) => {
    let time = 0;
    for (const task of tasks.filter((one) => one.core === index)) {
      const middle = Math.max(time, task.start - 200);
      bubbles.push({ core: index, begin: time, end: middle, cause: time === 0 ? 0 : 1 },
        { core: index, begin: middle, end: task.start, cause: 6 });
      time = task.end;
    }
    bubbles.push({ core: index, begin: time, end: window_ns, cause: 9 });
  });
  const path = [];
  let time = 0;
  tasks.forEach((task, number) => {
    if (task.core !== 0) return;
    path.push({ part: time === 0 ? 1 : 3, length: task.start - time, task: number },
      { part: 0, length: task.end - task.start, task: number });
    time = task.end;
  });
  path.push({ part: 6, length: window_ns - time, task: -1 });
  const spans = [{ lane: 0, begin: 0, end: window_ns, name: 0, depth: 0 }];
  for (let at = 500; at + 3000 < window_ns; at += 9000) {
    spans.push({ lane: 0, begin: at, end: at + 2500, name: 1, depth: 1 });
  }
  const step = { window_ns, cores, tasks, bubbles: bubbles.filter((one) => one.end > one.begin),
    path, spans, lanes: [{ name: 'orchestrator', kind: 'orchestrator' }],
    span_names: ['step', 'submit'], kernels: kMadeKernels };
  step.report = made_report(step);
  return step;
}

function made_report(step) {
  const { tasks, window_ns } = step;
  const run_ns = tasks.reduce((sum, task) => sum + task.end - task.start, 0);
  const kernels = step.kernels.map((name, kernel) => {
    const runs = tasks.filter((task) => task.kernel === kernel).map((task) => task.end - task.start)
      .sort((a, b) => a - b);
    return { name, runs: runs.length, core_ns: runs.reduce((sum, ns) => sum + ns, 0),
      median_ns: runs[runs.length >> 1] ?? 0, max_ns: runs[runs.length - 1] ?? 0 };
  });
  const busy = run_ns / window_ns;
  const path_ns = {};
  for (const part of step.path) {
    path_ns[kPathParts[part.part]] = (path_ns[kPathParts[part.part]] ?? 0) + part.length;
  }
  return {
    verdict: `${busy.toFixed(1)} of ${step.cores.length} cores are busy on average: made up`,
    step: 1, step_count: 3, step_lengths_ns: [window_ns * 0.97, window_ns, window_ns * 1.05],
    window_ns, average_busy_cores: busy, kernels,
    critical_path: { parts_ns: path_ns, kernels: [{ name: 'norm', runs: 3, ns: 4000 }] },
    longest_chain: { ns: window_ns * 0.6, tasks: 12 },
    task_overhead: { tasks: tasks.length, run_ns, dispatch_to_finish_ns: run_ns * 1.2,
      share: 1 / 6 },
    what_if: { replay_error: 0.001, lines: [
      { what: 'twice the cores', makespan_ns: window_ns * 0.7, gain: 0.3 },
      { what: 'gate_up in half the time', makespan_ns: window_ns * 0.9, gain: 0.1 }] },
    notes: ['<b>made</b> up: nothing was measured'],
  };
}

// Two streams of an NPU for 2 ms: of each 100 us what is known by hand.
//   stream 7   .11111..2222........
//   stream 9   .....rr........c....
// Launches: none of 1, of 2 in the middle of the gap before it, of the copy long before. Causes and
// a path are there as the program writes them; the page is to show neither.
export function make_stream_step({ scale = 1000, copy_ns = 100 } = {}) {
  const cores = [{ name: 'Stream 7', kind: 'stream' }, { name: 'Stream 9', kind: 'stream' }];
  const task = (core, start, end, kernel, id, submit) => ({ core, start: start * scale,
    end: end * scale, kernel, id, layer: 0, submit: submit && submit * scale, producers: [] });
  const tasks = [task(0, 100, 600, 0, 1), task(0, 800, 1200, 0, 3, 750),
    task(1, 500, 700, 1, 2), task(1, 1500, 1500 + copy_ns, 2, 4, 1000)];
  const idle = (core, begin, end, cause) =>
    ({ core, begin: begin * scale, end: end * scale, cause });
  const bubbles = [idle(0, 0, 100, 0), idle(0, 600, 800, 1), idle(0, 1200, 1700, 1),
    idle(0, 1700, 2000, 9), idle(1, 0, 500, 1), idle(1, 700, 1500, 1),
    idle(1, 1500 + copy_ns, 2000, 10)];
  const step = { window_ns: 2000 * scale, cores, tasks, bubbles, spans: [], lanes: [],
    path: [{ part: 1, length: 1500 * scale, task: 3 },
      { part: 0, length: copy_ns * scale, task: 3 },
      { part: 6, length: (500 - copy_ns) * scale, task: -1 }],
    span_names: [], kernels: ['matmul', 'all_reduce', 'copy'] };
  const device = { device: 'NPU 0', step_ns: 2000, compute_ns: 900, overlapped_ns: 100,
    communication_alone_ns: 100, copy_alone_ns: copy_ns, idle_ns: 1000 - copy_ns,
    idle_for_launch_ns: 50, idle_launched_ns: 350, idle_unknown_ns: 600 - copy_ns };
  for (const key of Object.keys(device)) if (key !== 'device') device[key] *= scale;
  const findings = ['missing times', 'observer', 'edges'].map((check) =>
    ({ check, level: 'note', text: `${check}: as always with streams` }));
  step.report = { ...made_report(step), verdict: 'NPU 0 computes 45 % of the step; made up',
    devices: [{ ...device, idle_count: 4 }], quality: { findings },
    groups: { layers: 1, kernels: [{ name: 'matmul', tasks: 2, layers: 1 }] } };
  return step;
}

// ---- the document ----

function read_web(name) {
  return readFileSync(new URL(name, kWeb), 'utf8');
}

export function joined_script() {
  return kModules.map((name) => read_web(name).replace(/^import [^;]*;\n/gm, '')
    .replace(/^export /gm, '')).join('\n');
}

// data: {first, second, diff}, of which the last two may be missing.
export function make_page(data, title = 'made') {
  const elements = Object.entries(data).map(([id, value]) =>
    `<script type="application/json" id="${id}">` +
    `${JSON.stringify(value).replaceAll('<', '\\u003c')}</script>\n`).join('');
  const texts = { '<!--TITLE-->': title, '/*STYLE*/': read_web('report.css'),
    '<!--DATA-->': elements, '/*SCRIPT*/': joined_script() };
  return read_web('report.html').split(/(<!--TITLE-->|\/\*STYLE\*\/|<!--DATA-->|\/\*SCRIPT\*\/)/)
    .map((piece) => texts[piece] ?? piece).join('');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [path, task_count] = process.argv.slice(2);
  const step = make_step({ task_count: Number(task_count ?? 400), core_count: 72 });
  writeFileSync(path, make_page({ first: pack_step(step, { levels: [2048, 8192] }) }));
}
