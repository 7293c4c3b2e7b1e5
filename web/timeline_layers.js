// SPDX-License-Identifier: Apache-2.0
//
// What lies over the lanes of a timeline: the time axis, the critical path, the edges of the
// selected task, the pointer's hairline; and the overview of the whole step above them.
import { busy_by_kernel, first_above, format_ns, format_tick } from './page_data.js';
import { neighbours_of, tick_step } from './page_data.js';

export const kGutter = 118;  // lane names, in CSS pixels as all sizes here
export const kAxis = 26;
export const kOverview = 46;
export const kPathHeight = 11;
export const kFont = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const kMaxEdges = 400;
const kMaxThread = 500;     // parts of the path in view, to join them by a line
const kMaxOutlines = 2000;  // ... and to outline them at all

export function draw_axis(timeline, context) {
  const { surface } = timeline.page.colours;
  const { begin, end } = timeline.own_range();
  const step_ns = tick_step((end - begin) / timeline.plot_width, 92);
  context.font = `11px ${kFont}`;
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  context.fillStyle = surface.line;
  context.fillRect(kGutter, kAxis - 1, timeline.plot_width, 1);
  const largest = Math.max(Math.abs(begin), Math.abs(end));
  for (let i = Math.ceil(begin / step_ns); i * step_ns <= end; ++i) {
    const x = Math.round(timeline.x_of(i * step_ns));
    context.fillStyle = surface.quiet;
    context.fillRect(x, kAxis - 7, 1, 6);
    context.globalAlpha = 0.13;
    context.fillRect(x, kAxis, 1, timeline.height - kAxis);
    context.globalAlpha = 1;
    if (x < timeline.width - 40) {
      context.fillText(format_tick(i * step_ns, step_ns, largest), x + 4, kAxis - 13);
    }
  }
}

// The path has a row of its own on top; its tasks are outlined where they ran while there are few
// enough to tell them apart, and joined by a line while there are few enough to follow it.
export function draw_path(timeline, context, rows) {
  const { path, tasks } = timeline.step;
  const { surface } = timeline.page.colours;
  const range = timeline.own_range();
  const first = first_above(path.end, 0, path.count, range.begin);
  const last = first_above(path.begin, first, path.count, range.end);
  const own_row = rows.find((row) => row.kind === 'path');
  if (last - first <= kMaxOutlines) draw_path_row(timeline, context, own_row, first, last);
  if (last - first > kMaxOutlines) return;
  const is_thread = last - first <= kMaxThread;
  context.strokeStyle = surface.ink;
  context.lineJoin = 'round';
  context.lineWidth = 1.5;
  context.beginPath();
  let last_x = -1;
  let has_point = false;
  for (let i = first; i < last; ++i) {
    const task = path.task[i];
    if (task < 0 || timeline.step.path_parts[path.part[i]] !== 'run') continue;
    const row = timeline.rows[timeline.core_rows[tasks.core[task]]];
    const x0 = timeline.x_of(tasks.start[task]);
    const x1 = timeline.x_of(tasks.end[task]);
    const top = timeline.row_top(row);
    if (is_thread) {
      const y = top + row.height / 2;
      if (has_point) context.lineTo(x0, y);
      else context.moveTo(x0, y);
      has_point = true;
      context.moveTo(x1, y);
      if (x1 - x0 > 5) context.rect(x0 + 0.75, top + 0.25, x1 - x0 - 2, row.height - 1.5);
      context.moveTo(x1, y);
    } else if (Math.floor(x1 * 2) !== last_x) {
      last_x = Math.floor(x1 * 2);
      context.rect(x0, top, Math.max(x1 - x0, 0.5), row.height - 1);
    }
  }
  context.globalAlpha = is_thread ? 0.9 : 0.75;
  if (!is_thread) context.lineWidth = 0.75;
  context.stroke();
  context.globalAlpha = 1;
}

export function draw_path_row(timeline, context, row, first, last) {
  if (!row) return;
  const { path, tasks, kernels, path_parts } = timeline.step;
  const top = timeline.row_top(row) + 1;
  let next_x = kGutter;
  for (let i = first; i < last; ++i) {
    const x1 = Math.min(timeline.x_of(path.end[i]), timeline.width);
    if (x1 - next_x < 0.5 && i + 1 < last) continue;
    const part = path_parts[path.part[i]];
    const is_run = part === 'run' && path.task[i] >= 0;
    context.fillStyle = is_run ? timeline.page.colours.kernel(kernels[tasks.kernel[path.task[i]]])
      : timeline.page.colours.path_part(part);
    context.fillRect(next_x, top, Math.max(0.5, x1 - next_x), kPathHeight);
    next_x = x1;
  }
}

export function draw_edges(timeline, context) {
  const { surface } = timeline.page.colours;
  const { producers, consumers } = neighbours_of(timeline.step.tasks, timeline.selected.index);
  const own = timeline.rect_of(timeline.selected);
  const draw = (others, colour, is_producer) => {
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 1.5;
    for (let i = 0; i < others.length && i < kMaxEdges; ++i) {
      const other = timeline.rect_of({ kind: 'task', index: others[i] });
      const [from, to] = is_producer ? [other, own] : [own, other];
      const y0 = from.top + from.height / 2;
      const y1 = to.top + to.height / 2;
      const bend = Math.min(90, Math.max(14, Math.abs(to.x0 - from.x1) * 0.5));
      context.globalAlpha = 0.85;
      context.beginPath();
      context.moveTo(from.x1, y0);
      context.bezierCurveTo(from.x1 + bend, y0, to.x0 - bend, y1, to.x0, y1);
      context.stroke();
      context.beginPath();
      context.arc(is_producer ? from.x1 : to.x0, is_producer ? y0 : y1, 2.6, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
  };
  draw(producers, surface.producer, true);
  draw(consumers, surface.consumer, false);
}

// A hairline at the pointer, with its time.
export function draw_cursor(timeline, context) {
  if (timeline.pointer_x === null || timeline.pointer_x < kGutter) return;
  const { surface } = timeline.page.colours;
  const x = Math.min(timeline.pointer_x, kGutter + timeline.plot_width);
  context.fillStyle = surface.ink;
  context.globalAlpha = 0.35;
  context.fillRect(Math.round(x), kAxis - 8, 1, timeline.height);
  context.globalAlpha = 1;
  const text = format_ns(timeline.time_at(x) * timeline.time_scale(), 5);
  context.font = `600 11px ${kFont}`;
  const width = context.measureText(text).width + 10;
  const left = Math.min(x + 1, timeline.width - width);
  context.fillStyle = surface.ink;
  context.beginPath();
  context.roundRect(left, 3, width, 17, 4);
  context.fill();
  context.fillStyle = surface.card;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.fillText(text, left + 5, 12);
}

// Busy cores over the whole step, stacked by kernel; what is out of view is veiled.
export function draw_overview(timeline) {
  const context = timeline.overview.getContext('2d');
  const { surface } = timeline.page.colours;
  const { range, window_ns } = timeline.page;
  timeline.overview_image ??= make_overview(timeline);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(timeline.overview_image, 0, 0);
  context.setTransform(timeline.ratio, 0, 0, timeline.ratio, 0, 0);
  const x0 = kGutter + range.begin / window_ns * timeline.plot_width;
  const x1 = Math.max(x0 + 2, kGutter + range.end / window_ns * timeline.plot_width);
  if (range.end - range.begin >= window_ns) return;
  context.fillStyle = surface.card;
  context.globalAlpha = 0.72;
  context.fillRect(kGutter, 0, x0 - kGutter, kOverview);
  context.fillRect(x1, 0, timeline.width - x1, kOverview);
  context.globalAlpha = 1;
  context.strokeStyle = surface.accent;
  context.lineWidth = 1.5;
  context.beginPath();
  context.roundRect(x0, 1, x1 - x0, kOverview - 2, 3);
  context.stroke();
}

// All cores, unless few of them are ever busy: then as many as ever are.
function overview_height(step, busy, count) {
  const sums = new Float32Array(count);
  busy.forEach((value, i) => { sums[i % count] += value; });
  const peak = Math.ceil(sums.reduce((most, value) => Math.max(most, value), 0));
  const cores = Math.max(1, step.cores.length);
  return peak > 0 && peak < cores * 0.6 ? peak : cores;
}

export function make_overview(timeline) {
  const { step, page } = timeline;
  const image = document.createElement('canvas');
  image.width = timeline.overview.width;
  image.height = timeline.overview.height;
  const context = image.getContext('2d');
  context.setTransform(timeline.ratio, 0, 0, timeline.ratio, 0, 0);
  const { surface } = page.colours;
  context.fillStyle = surface.card;
  context.fillRect(0, 0, timeline.width, kOverview);
  context.fillStyle = surface.plot;
  context.fillRect(kGutter, 2, timeline.plot_width, kOverview - 4);
  const extent = page.is_scaled ? 1 : step.window_ns / page.window_ns;
  const count = Math.max(1, Math.round(timeline.plot_width * extent));
  const busy = busy_by_kernel(step, count);
  const highest = overview_height(step, busy, count);
  const unit = (kOverview - 4) / highest;
  const below = new Float32Array(count);
  for (const name of page.colours.ranked_kernels) {
    const kernel = step.kernels.indexOf(name);
    if (kernel < 0) continue;
    context.fillStyle = page.colours.kernel(name);
    for (let x = 0; x < count; ++x) {
      const height = busy[kernel * count + x] * unit;
      if (height <= 0) continue;
      context.fillRect(kGutter + x, kOverview - 2 - below[x] - height, 1, height);
      below[x] += height;
    }
  }
  context.font = `10.5px ${kFont}`;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.fillStyle = surface.quiet;
  context.fillText(`${highest}`, kGutter - 8, 8);
  context.fillText(`busy ${timeline.noun}s`, kGutter - 8, kOverview / 2);
  context.fillText('0', kGutter - 8, kOverview - 8);
  return image;
}
