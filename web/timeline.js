// SPDX-License-Identifier: Apache-2.0
//
// The timeline: all lanes of a step on a canvas, with an overview of the whole step above it.
//
// Each lane is one row of pixels, computed exactly (page_data.js) and stretched to the lane's
// height, so a frame costs about as much as its pixels and not as its tasks; few items are drawn as
// blocks with labels instead. What does not move while the pointer does is kept in a second canvas.
import { mix, rgb_of } from './colours.js';
import { RowPainter, first_above, item_at, level_for, match_level } from './page_data.js';
import { once, paint_items, paint_level, partition_of } from './page_data.js';
import { is_of_streams } from './stream_data.js';
import { listen_to } from './timeline_input.js';
import { draw_axis, draw_cursor, draw_edges, draw_overview, draw_path } from './timeline_layers.js';
import { kAxis, kFont, kGutter, kOverview, kPathHeight } from './timeline_layers.js';

const kMaxBlocks = 2500;  // more items than this in view are drawn as rows of pixels

function canvas_of(parent, class_name, label) {
  const canvas = document.createElement('canvas');
  canvas.className = class_name;
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', label);
  parent.append(canvas);
  return canvas;
}

// `page`: what all timelines of a page share: range, window_ns, is_scaled, colours, show_bubbles,
// show_path, show_edges, chosen_cause (a name or null), row_scale, and the calls set_range(range),
// on_hover(timeline, item, event), on_select(timeline, item), zoom_to(timeline, item). An item is
// {kind, index}, kind: task, bubble, span or path.
export class Timeline {
  constructor(root, step, page) {
    Object.assign(this, { root, step, page, matches: null, selected: null, hovered: null });
    Object.assign(this, { pointer_x: null, frame_ms: 0, frame_count: 0, is_base_stale: true });
    Object.assign(this, { is_requested: false, overview_image: null, rows: [], max_height: 400 });
    this.noun = is_of_streams(step) ? 'stream' : 'core';
    this.overview = canvas_of(root, 'overview', `busy ${this.noun}s over the whole step`);
    this.scroller = document.createElement('div');
    this.scroller.className = 'scroller';
    root.append(this.scroller);
    const label = `timeline of ${step.cores.length} ${this.noun}s`;
    this.canvas = canvas_of(this.scroller, 'plot', label);
    this.spacer = document.createElement('div');
    this.scroller.append(this.spacer);
    this.gutter = kGutter;
    this.base = document.createElement('canvas');
    this.strip = document.createElement('canvas');
    this.find_reach();
    listen_to(this);
  }

  // Spans nest, so their ends are not sorted; the largest end so far is.
  find_reach() {
    const { spans } = this.step;
    this.span_reach = new Float64Array(spans.count);
    this.lane_depth = this.step.lanes.map((lane, index) => {
      let reach = 0;
      let depth = 0;
      for (let i = spans.lane_begin[index]; i < spans.lane_begin[index + 1]; ++i) {
        this.span_reach[i] = reach = Math.max(reach, spans.end[i]);
        depth = Math.max(depth, spans.depth[i] + 1);
      }
      return Math.min(depth, 6);
    });
  }

  // ---- layout ----

  resize(max_height) {
    this.max_height = max_height ?? this.max_height;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(240, Math.floor(this.scroller.clientWidth));
    this.make_rows();
    const height = Math.min(this.max_height, kAxis + this.content_height + 4);
    for (const [canvas, canvas_height] of [[this.canvas, height], [this.overview, kOverview]]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(canvas_height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${canvas_height}px`;
    }
    this.base.width = this.canvas.width;
    this.base.height = this.canvas.height;
    this.scroller.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, kAxis + this.content_height + 4 - height)}px`;
    Object.assign(this, { width, height, ratio, plot_width: width - kGutter - 8 });
    this.overview_image = null;
    this.invalidate();
  }

  make_rows() {
    const { step, page } = this;
    const groups = new Map();
    step.cores.forEach((core, index) => {
      if (!groups.has(core.kind)) groups.set(core.kind, []);
      groups.get(core.kind).push(index);
    });
    const lanes = step.lanes.map((lane, index) => index).filter((i) => this.lane_depth[i] > 0);
    const fixed = 24 + 20 * (groups.size + (lanes.length > 0 ? 1 : 0)) +
      lanes.reduce((sum, lane) => sum + 11 * this.lane_depth[lane] + 2, 0);
    const fitting = (this.max_height - kAxis - fixed) / Math.max(1, step.cores.length);
    const core_height = Math.max(5, Math.min(36, Math.floor(fitting))) * page.row_scale;
    this.rows = [];
    this.core_rows = [];
    let y = 2;
    const push = (row) => {
      this.rows.push({ ...row, y });
      y += row.height;
    };
    if (page.show_path && step.path.count > 0) push({ kind: 'path', height: 16 });
    for (const [kind, cores] of groups) {
      push({ kind: 'head', height: 20, label: this.group_label(kind, cores) });
      for (const core of cores) {
        this.core_rows[core] = this.rows.length;
        push({ kind: 'core', height: core_height, index: core, label: step.cores[core].name });
      }
    }
    if (lanes.length > 0) push({ kind: 'head', height: 20, label: 'other lanes' });
    for (const lane of lanes) {
      const { name } = step.lanes[lane];
      for (let depth = 0; depth < this.lane_depth[lane]; ++depth) {
        const is_last = depth + 1 === this.lane_depth[lane];
        push({ kind: 'lane', height: is_last ? 13 : 11, index: lane, depth,
          label: depth === 0 ? name : '' });
      }
    }
    this.content_height = y;
  }

  group_label(kind, cores) {
    const noun = cores.length === 1 ? this.noun : `${this.noun}s`;
    if (is_of_streams(this.step)) return `${cores.length} ${noun}`;
    const { busy_ns } = once(this.step, 'partition', () => partition_of(this.step));
    const busy = cores.reduce((sum, core) => sum + busy_ns[core], 0);
    const average = busy / Math.max(1, this.step.window_ns);
    return `${kind}   ${average.toFixed(1)} of ${cores.length} ${noun} busy`;
  }

  // What part of this step is in view: its own times.
  own_range() {
    const { range } = this.page;
    const scale = this.time_scale();
    return { begin: range.begin * scale, end: range.end * scale };
  }

  time_scale() {
    return this.page.is_scaled ? this.step.window_ns / this.page.window_ns : 1;
  }

  x_of(time) {
    const { begin, end } = this.own_range();
    return kGutter + (time - begin) / (end - begin) * this.plot_width;
  }

  // Time of the page's range at a place on the canvas.
  time_at(x) {
    const { begin, end } = this.page.range;
    return begin + (x - kGutter) / this.plot_width * (end - begin);
  }

  row_top(row) {
    return kAxis + row.y - this.scroller.scrollTop;
  }

  visible_rows() {
    return this.rows.filter((row) => {
      const top = this.row_top(row);
      return top + row.height > kAxis && top < this.height;
    });
  }

  // ---- drawing ----

  invalidate() {
    this.is_base_stale = true;
    this.request();
  }

  request() {
    if (this.is_requested) return;
    this.is_requested = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.is_requested = false;
    if (!this.width) return;
    const begin = performance.now();
    if (this.is_base_stale) this.draw_base();
    this.is_base_stale = false;
    const context = this.canvas.getContext('2d');
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.base, 0, 0);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.save();
    context.beginPath();
    context.rect(kGutter, kAxis, this.plot_width, this.height - kAxis);
    context.clip();
    if (this.page.show_edges && this.selected?.kind === 'task') draw_edges(this, context);
    if (this.hovered) this.outline(context, this.hovered, this.page.colours.surface.ink, 1.5);
    if (this.selected) {
      const width = Math.min(5, this.rect_of(this.selected).height / 2);
      this.outline(context, this.selected, this.page.colours.surface.mark, width);
      this.outline(context, this.selected, this.page.colours.surface.ink, width * 0.4);
    }
    context.restore();
    draw_cursor(this, context);
    draw_overview(this);
    this.frame_ms = performance.now() - begin;
    ++this.frame_count;
  }

  draw_base() {
    const context = this.base.getContext('2d');
    const { surface } = this.page.colours;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = surface.card;
    context.fillRect(0, 0, this.width, this.height);
    const rows = this.visible_rows();
    context.save();
    context.beginPath();
    context.rect(0, kAxis, this.width, this.height - kAxis);
    context.clip();
    this.draw_labels(context, rows);
    context.beginPath();
    context.rect(kGutter, kAxis, this.plot_width, this.height - kAxis);
    context.clip();
    this.draw_rows(context, rows);
    if (this.page.show_path) draw_path(this, context, rows);
    context.restore();
    draw_axis(this, context);
  }

  draw_labels(context, rows) {
    const { surface } = this.page.colours;
    context.textBaseline = 'middle';
    let last_bottom = -Infinity;
    for (const row of rows) {
      const top = this.row_top(row);
      const middle = top + row.height / 2;
      if (row.kind === 'head') {
        context.font = `600 10.5px ${kFont}`;
        context.fillStyle = surface.quiet;
        context.textAlign = 'left';
        context.fillText(row.label, 8, middle - 1);
        last_bottom = top + row.height - 3;
        continue;
      }
      if (middle - 5.5 < last_bottom) continue;
      context.font = row.kind === 'path' ? `600 10.5px ${kFont}` : `10.5px ${kFont}`;
      context.fillStyle = row.kind === 'path' ? surface.ink : surface.text;
      context.textAlign = 'right';
      const label = row.kind === 'path' ? 'critical path' : row.label;
      context.fillText(fit_text(context, label, kGutter - 18), kGutter - 8, middle + 0.5);
      last_bottom = middle + 6;
    }
  }

  draw_rows(context, rows) {
    const range = this.own_range();
    let item_count = 0;
    const drawn = rows.filter((row) => row.kind === 'core' || row.kind === 'lane');
    for (const row of drawn) {
      this.visit_counts(row, range, (first, last) => { item_count += last - first; });
    }
    if (item_count <= kMaxBlocks) this.draw_blocks(context, drawn, range);
    else this.draw_pixels(context, rows.filter((row) => row.kind !== 'head'), range, item_count);
  }

  // Calls visit(first, last, items) with the items of a row that may be in view.
  visit_counts(row, range, visit) {
    const { tasks, bubbles, spans } = this.step;
    if (row.kind === 'lane') {
      const from = spans.lane_begin[row.index];
      const to = first_above(spans.begin, from, spans.lane_begin[row.index + 1], range.end);
      visit(first_above(this.span_reach, from, to, range.begin), to, spans);
      return;
    }
    for (const items of [bubbles, tasks]) {
      const starts = items.start ?? items.begin;
      const to = items.core_begin[row.index + 1];
      const first = first_above(items.end, items.core_begin[row.index], to, range.begin);
      visit(first, first_above(starts, first, to, range.end), items);
    }
  }

  // Colours as the painter takes them, with what does not match mixed into the background.
  tables() {
    const { colours, show_bubbles, chosen_cause } = this.page;
    const background = rgb_of(colours.surface.plot);
    const is_filtered = this.matches !== null;
    const dim = (rgb) => mix(rgb, background, 0.86);
    const kernels = this.step.kernels.map((name) => rgb_of(colours.kernel(name)));
    const causes = this.step.causes.map((name) => {
      if (!show_bubbles) return background;
      const rgb = rgb_of(colours.cause(name));
      if (chosen_cause === null) return is_filtered ? mix(rgb, background, 0.7) : rgb;
      if (chosen_cause !== name) return dim(rgb);
      return mix(rgb, rgb_of(colours.surface.consumer), 0.45);
    });
    const dim_kernels = new Float32Array(kernels.map(dim).flat());
    const parts = this.step.path_parts.flatMap((name) => rgb_of(colours.path_part(name)));
    return {
      background, dim_kernels, matches: this.matches, path_parts: new Float32Array(parts),
      kernels: chosen_cause === null ? new Float32Array(kernels.flat()) : dim_kernels,
      causes: new Float32Array([background, ...causes].flat()),
      spans: new Float32Array(this.step.span_names.flatMap((name, i) => rgb_of(colours.span(i)))),
    };
  }

  draw_pixels(context, rows, range, item_count) {
    const width = Math.max(1, Math.round(this.plot_width * this.ratio));
    const painter = new RowPainter(width, this.tables());
    const ns_per_pixel = (range.end - range.begin) / width;
    const level = level_for(this.step, ns_per_pixel, item_count, width * rows.length);
    const matched = level && this.matches ? this.matched_of(level) : null;
    const separator = item_count * 4 < width * rows.length ? 1 : 0;
    const image = new ImageData(width, Math.max(1, rows.length));
    rows.forEach((row, y) => {
      if (row.kind === 'path') this.paint_path(painter, range);
      else if (row.kind === 'lane') this.paint_spans(painter, row, range);
      else if (level) paint_level(painter, level, row.index, range, matched);
      else paint_items(painter, this.step, row.index, range, separator);
      painter.flush(image.data, y);
    });
    this.strip.width = width;
    this.strip.height = image.height;
    this.strip.getContext('2d').putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    rows.forEach((row, y) => {
      const is_path = row.kind === 'path';
      const height = is_path ? kPathHeight : row.height - (row.height >= 6 ? 1 : 0.5);
      const top = this.row_top(row) + (is_path ? 1 : 0);
      context.drawImage(this.strip, 0, y, width, 1, kGutter, top, this.plot_width, height);
    });
  }

  // Made once for a filter and a level.
  matched_of(level) {
    const { matched } = this;
    if (matched?.level === level && matched.matches === this.matches) return matched.shares;
    const shares = match_level(this.step, level, this.matches);
    this.matched = { level, matches: this.matches, shares };
    return shares;
  }

  paint_path(painter, range) {
    const { path, path_parts, tasks } = this.step;
    const { colours } = painter;
    const scale = painter.width / (range.end - range.begin);
    let i = first_above(path.end, 0, path.count, range.begin);
    for (; i < path.count && path.begin[i] < range.end; ++i) {
      const is_run = path_parts[path.part[i]] === 'run' && path.task[i] >= 0;
      painter.add((path.begin[i] - range.begin) * scale, (path.end[i] - range.begin) * scale,
        is_run ? colours.kernels : colours.path_parts,
        3 * (is_run ? tasks.kernel[path.task[i]] : path.part[i]));
    }
  }

  paint_spans(painter, row, range) {
    const { spans } = this.step;
    const scale = painter.width / (range.end - range.begin);
    this.visit_counts(row, range, (first, last) => {
      for (let i = first; i < last; ++i) {
        if (spans.depth[i] !== row.depth || spans.end[i] <= range.begin) continue;
        painter.add((spans.begin[i] - range.begin) * scale, (spans.end[i] - range.begin) * scale,
          painter.colours.spans, 3 * spans.name[i]);
      }
    });
  }

  draw_blocks(context, rows, range) {
    const { surface } = this.page.colours;
    const tables = this.tables();
    const { tasks, spans } = this.step;
    for (const row of rows) {
      const top = this.row_top(row);
      const height = row.height - (row.height >= 6 ? 1 : 0.5);
      context.fillStyle = surface.plot;
      context.fillRect(kGutter, top, this.plot_width, height);
      this.visit_counts(row, range, (first, last, items) => {
        const starts = items.start ?? items.begin;
        for (let i = first; i < last; ++i) {
          if (items === spans && spans.depth[i] !== row.depth) continue;
          const x0 = Math.max(kGutter - 4, this.x_of(starts[i]));
          const x1 = Math.min(this.width + 4, this.x_of(items.end[i]));
          const { rgb, at, label } = this.look_of(items, i, tables);
          context.fillStyle = `rgb(${rgb[at]} ${rgb[at + 1]} ${rgb[at + 2]})`;
          const is_block = items === tasks || items === spans;
          const drawn_width = is_block && x1 - x0 > 4 ? x1 - x0 - 1 : x1 - x0;
          this.fill_block(context, x0, top, drawn_width, height, is_block);
          if (is_block && drawn_width > 26 && height >= 9.5) {
            const is_dim = items === tasks && rgb === tables.dim_kernels;
            this.draw_block_label(context, label, { x0, x1: x0 + drawn_width, top, height }, is_dim,
              [rgb[at], rgb[at + 1], rgb[at + 2]]);
          }
        }
      });
    }
  }

  fill_block(context, x, y, width, height, is_round) {
    const radius = Math.min(3, height / 5, width / 5);
    if (!is_round || radius < 1) {
      context.fillRect(x, y, Math.max(width, 0.5), height);
      return;
    }
    context.beginPath();
    context.roundRect(x, y, width, height, radius);
    context.fill();
  }

  look_of(items, i, tables) {
    const { step } = this;
    if (items === step.tasks) {
      const is_match = tables.matches === null || tables.matches[i];
      const rgb = is_match ? tables.kernels : tables.dim_kernels;
      return { rgb, at: 3 * items.kernel[i], label: step.kernels[items.kernel[i]] };
    }
    if (items === step.spans) {
      return { rgb: tables.spans, at: 3 * items.name[i], label: step.span_names[items.name[i]] };
    }
    return { rgb: tables.causes, at: 3 * (items.cause[i] + 1), label: '' };
  }

  draw_block_label(context, label, box, is_dim, rgb) {
    const x0 = Math.max(box.x0, kGutter) + 4;
    const room = Math.min(box.x1, this.width - 8) - x0 - 3;
    const size = Math.min(11, box.height - 1);
    context.font = `500 ${size}px ${kFont}`;
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    const text = fit_text(context, label, room);
    const light = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 150;
    context.fillStyle = light ? 'rgb(0 0 0 / 0.82)' : 'rgb(255 255 255 / 0.95)';
    context.globalAlpha = is_dim ? 0.35 : 1;
    context.fillText(text, x0, box.top + box.height / 2 + 0.5);
    context.globalAlpha = 1;
  }

  rect_of(item) {
    const { tasks, bubbles, spans, path } = this.step;
    const items = { task: tasks, bubble: bubbles, span: spans, path }[item.kind];
    const begin = (items.start ?? items.begin)[item.index];
    const x0 = this.x_of(begin);
    const x1 = Math.max(x0 + 1.5, this.x_of(items.end[item.index]));
    let row = this.rows[0];
    if (item.kind === 'span') {
      const lane = spans.lane[item.index];
      row = this.rows.find((candidate) => candidate.kind === 'lane' && candidate.index === lane &&
        candidate.depth === Math.min(spans.depth[item.index], this.lane_depth[lane] - 1));
    } else if (item.kind !== 'path') {
      row = this.rows[this.core_rows[items.core[item.index]]];
    }
    return { x0, x1, top: this.row_top(row), height: row.height - 1 };
  }

  outline(context, item, colour, line_width) {
    if (item.kind === 'path' && this.rows[0]?.kind !== 'path') return;
    const { x0, x1, top, height } = this.rect_of(item);
    context.strokeStyle = colour;
    context.lineWidth = line_width;
    context.beginPath();
    context.roundRect(x0, top, x1 - x0, height, Math.min(2.5, height / 5));
    context.stroke();
  }

  // ---- what is where ----

  hit(x, y) {
    if (x < kGutter || x > kGutter + this.plot_width || y < kAxis) return null;
    const row = this.rows.find((candidate) => {
      const top = this.row_top(candidate);
      return y >= top && y < top + candidate.height;
    });
    if (!row || row.kind === 'head') return null;
    const { tasks, bubbles, spans, path } = this.step;
    const range = this.own_range();
    const time = this.time_at(x) * this.time_scale();
    const reach = 3 * (range.end - range.begin) / this.plot_width;
    const item = (kind, index) => (index < 0 ? null : { kind, index });
    if (row.kind === 'path') return item('path', item_at(path, 0, path.count, time, 0));
    if (row.kind === 'lane') return item('span', this.span_at(row, time, reach));
    const bounds = (items) => [items.core_begin[row.index], items.core_begin[row.index + 1]];
    const inside = item_at(tasks, ...bounds(tasks), time, 0);
    if (inside >= 0) return item('task', inside);
    const bubble = item_at(bubbles, ...bounds(bubbles), time, 0);
    const is_wide = bubble >= 0 && bubbles.end[bubble] - bubbles.begin[bubble] > 2 * reach;
    const near = is_wide ? -1 : item_at(tasks, ...bounds(tasks), time, reach);
    return near >= 0 ? item('task', near) : item('bubble', bubble);
  }

  span_at(row, time, reach) {
    const { spans } = this.step;
    let best = -1;
    let best_distance = reach;
    this.visit_counts(row, { begin: time - reach, end: time + reach }, (first, last) => {
      for (let i = first; i < last; ++i) {
        if (Math.min(spans.depth[i], this.lane_depth[row.index] - 1) !== row.depth) continue;
        const distance = Math.max(0, spans.begin[i] - time, time - spans.end[i]);
        if (distance <= best_distance) [best, best_distance] = [i, distance];
      }
    });
    return best;
  }

  // Brings a row into view.
  scroll_to(item) {
    if (item.kind === 'path') {
      this.scroller.scrollTop = 0;  // its row is the first
      return;
    }
    const { top, height } = this.rect_of(item);
    if (top < kAxis) this.scroller.scrollTop -= kAxis - top + 20;
    else if (top + height > this.height) this.scroller.scrollTop += top + height - this.height + 20;
  }
}

// The text, shortened until it fits; empty when hardly a letter does.
function fit_text(context, text, room) {
  const width = context.measureText(text).width;
  if (width <= room) return text;
  const kept = Math.floor(text.length * (room / width)) - 1;
  return kept < 5 && kept < text.length * 0.6 ? '' : `${text.slice(0, kept)}…`;
}
