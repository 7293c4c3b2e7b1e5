// SPDX-License-Identifier: Apache-2.0
//
// Steps of captures of streams, as profilers of GPUs and NPUs make them: pure functions. Streams
// are queues and no cores: that one waits costs nothing while another runs, and nobody says for
// what. So idle time has no causes and there is no path; what counts is when a device runs nothing.
import { begins_of } from './page_data.js';

export function is_of_streams(step) {
  return (step.report?.devices?.length ?? 0) > 0;
}

// When each stream runs nothing, as bubbles of one cause.
function idle_of_streams(step) {
  const { tasks, window_ns } = step;
  const ranges = step.cores.map((core, index) => {
    const own = [];
    let time = 0;
    for (let i = tasks.core_begin[index]; i < tasks.core_begin[index + 1]; ++i) {
      if (tasks.start[i] > time) own.push([time, tasks.start[i]]);
      time = Math.max(time, tasks.end[i]);
    }
    if (window_ns > time) own.push([time, window_ns]);
    return own;
  });
  const all = ranges.flat();
  return {
    count: all.length, core_begin: begins_of(ranges.map((own) => own.length)),
    core: Uint16Array.from(ranges.flatMap((own, index) => own.map(() => index))),
    begin: Float64Array.from(all, ([begin]) => begin),
    end: Float64Array.from(all, ([, end]) => end), cause: new Uint8Array(all.length),
  };
}

// The step without what means nothing for streams: causes of idle time, and the path. Streams of
// several devices get names that tell them apart. Other steps are as they were.
export function as_streams(step) {
  if (!is_of_streams(step)) return step;
  const none = new Float64Array(0);
  const names = (step.report.partition?.cores ?? []).map((core) => core.name);
  return {
    ...step, causes: ['idle'], bubbles: idle_of_streams(step),
    cores: step.cores.map((core, i) => ({ ...core, name: names[i] ?? core.name })),
    path: { count: 0, part: new Uint8Array(0), begin: none, end: none, task: new Int32Array(0) },
    levels: step.levels.map((level) =>
      ({ ...level, cause: level.cause.map((cause) => Math.min(cause, 1)) })),
  };
}

// The device of each stream. Its name begins with the device's where another has the same; the
// others are taken for streams of the device before.
function devices_of_streams(step) {
  const { devices } = step.report;
  let last = 0;
  return step.cores.map((core) => {
    const named = devices.findIndex((one) => core.name.startsWith(`${one.device} `));
    return last = named >= 0 ? named : last;
  });
}

// When none of the streams runs anything, in the order of time: {begin, end, before, after, launch}
// with the last task to end before, the first to start after, of those that start together the one
// launched first, and its launch. -1 and NaN where there is none.
function gaps_of_streams(step, is_own) {
  const { tasks, window_ns } = step;
  const order = [];
  for (let i = 0; i < tasks.count; ++i) if (is_own(tasks.core[i])) order.push(i);
  order.sort((a, b) => tasks.start[a] - tasks.start[b] || a - b);
  const gaps = [];
  let reach = 0;
  let before = -1;
  for (const task of order) {
    const launch = tasks.submit[task];
    const last = gaps[gaps.length - 1];
    if (tasks.start[task] > reach) {
      gaps.push({ begin: reach, end: tasks.start[task], before, after: task, launch });
    } else if (last?.end === tasks.start[task] && !(launch >= last.launch) && launch === launch) {
      Object.assign(last, { after: task, launch });
    }
    if (tasks.end[task] < reach) continue;
    reach = tasks.end[task];
    before = task;
  }
  if (window_ns > reach) {
    gaps.push({ begin: reach, end: window_ns, before, after: -1, launch: NaN });
  }
  return gaps;
}

function length_of_gaps(gaps) {
  return gaps.reduce((sum, gap) => sum + gap.end - gap.begin, 0);
}

// The gaps of all devices, each with the name of its device. Where the sums of the report say that
// streams were taken for another device's: when no device at all runs anything, without names.
export function device_gaps(step) {
  const { devices } = step.report;
  const device_of = devices_of_streams(step);
  const gaps = devices.map((one, i) => gaps_of_streams(step, (core) => device_of[core] === i));
  const is_right = devices.every((one, i) => length_of_gaps(gaps[i]) === one.idle_ns);
  if (devices.length > 1 && !is_right) return gaps_of_streams(step, () => true);
  return gaps.flatMap((own, i) => own.map((gap) => ({ ...gap, device: devices[i].device })));
}

// What the time of a device is made of, in the order of docs/analysis.md; the sum is the step.
export function device_parts(device) {
  return [
    ['computing', device.compute_ns - device.overlapped_ns],
    ['computing and communicating', device.overlapped_ns],
    ['communicating alone', device.communication_alone_ns],
    ['copying alone', device.copy_alone_ns],
    ['idle: next kernel not launched', device.idle_for_launch_ns],
    ['idle: next kernel launched', device.idle_launched_ns],
    ['idle: launch not known', device.idle_unknown_ns],
  ].map(([label, ns]) => ({ label, ns }));
}

// The device that computes least: of several, the one the verdict is about.
export function worst_device(step) {
  return step.report.devices.reduce((worst, one) =>
    (one.compute_ns / one.step_ns < worst.compute_ns / worst.step_ns ? one : worst));
}
