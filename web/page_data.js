// SPDX-License-Identifier: Apache-2.0
//
// The pure part of the report page: one step unpacked from its columns (src/report/page_data.h says
// which), and the arithmetic of drawing it. Nothing here touches the document, so node tests it.
//
// Times are doubles in nanoseconds since the step's begin, exact below 2^53. Items of a core are
// sorted by time, so what is in view is found by bisection; a row of pixels costs one pass over it.

export const kTimeNames = ['submit', 'ready', 'dispatch', 'receive', 'start', 'end', 'finish'];
export const kRecordedTimes = ['submit', 'ready', 'dispatch', 'receive', 'finish'];

// ---- unpacking ----

function decode_base64(text) {
  if (Uint8Array.fromBase64) return [Uint8Array.fromBase64(text)];
  const chunks = [];
  const kChunk = 1 << 20;  // a multiple of 4, so each part is base64 by itself
  for (let at = 0; at < text.length; at += kChunk) {
    const letters = atob(text.slice(at, at + kChunk));
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; ++i) bytes[i] = letters.charCodeAt(i);
    chunks.push(bytes);
  }
  return chunks;
}

export async function inflate_base64(text) {
  const packed = new Blob(decode_base64(text)).stream();
  const stream = packed.pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export function unzigzag(value) {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

export class ColumnReader {
  constructor(bytes) {
    this.bytes = bytes;
    this.position = 0;
  }

  next() {
    const bytes = this.bytes;
    let byte = bytes[this.position++];
    if (byte < 128) return byte;
    let value = byte & 127;
    for (let scale = 128; byte >= 128; scale *= 128) {
      byte = bytes[this.position++];
      value += (byte & 127) * scale;
    }
    if (this.position > bytes.length) throw new Error('the columns end too early');
    return value;
  }

  column(count, ArrayType) {
    const values = new ArrayType(count);
    for (let i = 0; i < count; ++i) values[i] = this.next();
    return values;
  }
}

// First index of each part, and the end of the last.
export function begins_of(counts) {
  const begins = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; ++i) begins[i + 1] = begins[i] + counts[i];
  return begins;
}

// Begins and ends of items that are stored as gap and length, anew on each lane.
function unpack_ranges(reader, count, begins) {
  const begin = reader.column(count, Float64Array);
  const end = reader.column(count, Float64Array);
  for (let lane = 0; lane + 1 < begins.length; ++lane) {
    let last_end = 0;
    for (let i = begins[lane]; i < begins[lane + 1]; ++i) {
      begin[i] += last_end;
      end[i] += begin[i];
      last_end = end[i];
    }
  }
  return { begin, end };
}

function lane_of_items(begins) {
  const lanes = new Uint16Array(begins[begins.length - 1]);
  for (let lane = 0; lane + 1 < begins.length; ++lane) {
    lanes.fill(lane, begins[lane], begins[lane + 1]);
  }
  return lanes;
}

function unpack_tasks(reader, data) {
  const count = data.task_count;
  const core_begin = begins_of(data.cores.map((core) => core.task_count));
  const { begin, end } = unpack_ranges(reader, count, core_begin);
  const tasks = { count, core_begin, core: lane_of_items(core_begin), start: begin, end };
  tasks.kernel = reader.column(count, Uint32Array);
  tasks.id = reader.column(count, Float64Array);
  for (let i = 0, id = 0; i < count; ++i) tasks.id[i] = id += unzigzag(tasks.id[i]);
  for (const name of kRecordedTimes) {
    const column = reader.column(count, Float64Array);
    for (let i = 0; i < count; ++i) {
      if (column[i] === 0) {
        column[i] = NaN;
        continue;
      }
      const difference = unzigzag(column[i] - 1);
      column[i] = name === 'finish' ? end[i] + difference : begin[i] - difference;
    }
    tasks[name] = column;
  }
  tasks.layer = reader.column(count, Uint32Array);
  tasks.producer_begin = begins_of(reader.column(count, Uint32Array));
  return tasks;
}

function unpack_edges(reader, tasks, edge_count) {
  const producers = new Uint32Array(edge_count);
  if (edge_count === 0) return { producers, has_edges: false };
  for (let task = 0; task < tasks.count; ++task) {
    for (let i = tasks.producer_begin[task]; i < tasks.producer_begin[task + 1]; ++i) {
      producers[i] = task - unzigzag(reader.next());
    }
  }
  return { producers, has_edges: true };
}

function unpack_path(reader, data) {
  const count = data.path_count;
  const path = { count, part: reader.column(count, Uint8Array) };
  Object.assign(path, unpack_path_times(reader.column(count, Float64Array)));
  path.task = reader.column(count, Int32Array).map((number) => number - 1);
  return path;
}

function unpack_path_times(lengths) {
  const begin = new Float64Array(lengths.length);
  const end = new Float64Array(lengths.length);
  let time = 0;
  for (let i = 0; i < lengths.length; ++i) {
    begin[i] = time;
    end[i] = time += lengths[i];
  }
  return { begin, end };
}

function unpack_spans(reader, data) {
  const count = data.span_count;
  const lane_begin = begins_of(data.lanes.map((lane) => lane.span_count ?? 0));
  const begin = reader.column(count, Float64Array);
  const end = reader.column(count, Float64Array);
  for (let lane = 0; lane + 1 < lane_begin.length; ++lane) {
    let last_begin = 0;
    for (let i = lane_begin[lane]; i < lane_begin[lane + 1]; ++i) {
      begin[i] = last_begin += unzigzag(begin[i]);
      end[i] += begin[i];
    }
  }
  const spans = { count, lane_begin, lane: lane_of_items(lane_begin), begin, end };
  spans.name = reader.column(count, Uint32Array);
  spans.depth = reader.column(count, Uint8Array);
  return spans;
}

// The step as the page draws it. `bytes`: the columns, inflated. Throws when they do not fit.
export function unpack_step(data, bytes) {
  const reader = new ColumnReader(bytes);
  const step = { ...data, columns: null };
  step.tasks = unpack_tasks(reader, data);
  Object.assign(step.tasks, unpack_edges(reader, step.tasks, data.edge_count));
  const bubble_begin = begins_of(data.cores.map((core) => core.bubble_count));
  step.bubbles = {
    count: data.bubble_count, core_begin: bubble_begin, core: lane_of_items(bubble_begin),
    ...unpack_ranges(reader, data.bubble_count, bubble_begin),
    cause: reader.column(data.bubble_count, Uint8Array),
  };
  step.path = unpack_path(reader, data);
  step.spans = unpack_spans(reader, data);
  step.levels = data.levels.map((bucket_count) => {
    const count = bucket_count * data.core_count;
    return {
      bucket_count, bucket_ns: Math.ceil(data.window_ns / bucket_count),
      busy: reader.column(count, Uint8Array), kernel: reader.column(count, Uint32Array),
      cause: reader.column(count, Uint8Array),
    };
  });
  if (reader.position !== bytes.length) {
    throw new Error(`of ${bytes.length} bytes of columns ${reader.position} were read`);
  }
  return step;
}

// Consumers of all tasks, made when first asked for: the edges turned around.
export function consumers_of(tasks) {
  if (tasks.consumers) return tasks.consumers;
  const counts = new Uint32Array(tasks.count);
  for (const producer of tasks.producers) ++counts[producer];
  const begin = begins_of(counts);
  const next = begin.slice();
  const items = new Uint32Array(tasks.producers.length);
  for (let task = 0; tasks.has_edges && task < tasks.count; ++task) {
    for (let i = tasks.producer_begin[task]; i < tasks.producer_begin[task + 1]; ++i) {
      items[next[tasks.producers[i]]++] = task;
    }
  }
  tasks.consumers = { begin, items };
  return tasks.consumers;
}

export function neighbours_of(tasks, task) {
  if (!tasks.has_edges) return { producers: [], consumers: [] };
  const consumers = consumers_of(tasks);
  return {
    producers: tasks.producers.subarray(tasks.producer_begin[task], tasks.producer_begin[task + 1]),
    consumers: consumers.items.subarray(consumers.begin[task], consumers.begin[task + 1]),
  };
}

// ---- numbers and times as text ----

const kUnits = [['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]];

export function format_ns(ns, digits = 3) {
  if (!Number.isFinite(ns)) return '–';
  const size = Math.abs(ns);
  const [unit, scale] = kUnits.find(([, least]) => size >= least) ?? kUnits[3];
  const value = ns / scale;
  if (unit === 'ns') return `${Math.round(value)} ns`;
  const whole = Math.floor(Math.abs(value)).toString().length;
  return `${value.toFixed(Math.max(0, digits - whole))} ${unit}`;
}

// A time on the axis: as exact as the ticks are apart.
export function format_tick(ns, step_ns, largest_ns) {
  const [unit, scale] = kUnits.find(([, least]) => largest_ns >= least) ?? kUnits[3];
  const digits = Math.max(0, Math.ceil(Math.log10(scale / step_ns) - 1e-9));
  return `${(ns / scale).toFixed(digits)} ${unit}`;
}

export function format_share(share) {
  if (!Number.isFinite(share)) return '–';
  const percent = share * 100;
  const size = Math.abs(percent);
  if (size === 0) return '0 %';
  if (size < 0.01) return `${percent.toPrecision(1)} %`;
  return `${percent.toFixed(size >= 99.95 ? 0 : size >= 10 ? 1 : 2)} %`;
}

// 1.5e12, 'B/s': "1.50 TB/s"; 0 is not known.
export function format_rate(rate, unit) {
  if (!(rate > 0)) return '–';
  const power = Math.max(0, Math.min(5, Math.floor(Math.log10(rate * 1.0005) / 3)));
  const value = rate / 1000 ** power;
  const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${['', 'k', 'M', 'G', 'T', 'P'][power]}${unit}`;
}

export function format_count(count) {
  return Number.isFinite(count) ? Math.round(count).toLocaleString('en-US') : '–';
}

// The first clause of a sentence, with its mark, and the rest; brackets are not taken apart.
export function split_sentence(text) {
  let depth = 0;
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === '(') ++depth;
    if (text[i] === ')') --depth;
    if (depth === 0 && /[:;]/.test(text[i])) return [text.slice(0, i + 1), text.slice(i + 1)];
  }
  return [text, ''];
}

// ---- the visible range ----

export const kMinRangeNs = 20;

// Inside 0..window, no shorter than kMinRangeNs where the window is not.
export function clamp_range(begin, end, window_ns) {
  const length = Math.min(window_ns, Math.max(end - begin, Math.min(kMinRangeNs, window_ns)));
  const first = Math.min(Math.max(0, (begin + end - length) / 2), window_ns - length);
  return { begin: first, end: first + length };
}

// `anchor` keeps its place on the screen, as far as the window allows it.
export function zoom_range(range, factor, anchor, window_ns) {
  const least = Math.min(kMinRangeNs, window_ns);
  const old_length = range.end - range.begin;
  const length = Math.min(window_ns, Math.max(least, old_length * factor));
  const begin = anchor - (anchor - range.begin) * (length / old_length);
  return clamp_range(begin, begin + length, window_ns);
}

export function pan_range(range, by_ns, window_ns) {
  const length = range.end - range.begin;
  const begin = Math.min(Math.max(0, range.begin + by_ns), window_ns - length);
  return { begin, end: begin + length };
}

// 1, 2 or 5 times a power of ten, at least a nanosecond.
export function tick_step(ns_per_pixel, min_pixels) {
  const least = Math.max(1, ns_per_pixel * min_pixels);
  const power = 10 ** Math.floor(Math.log10(least) + 1e-12);
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= least * (1 - 1e-12));
  return factor * power;
}

// First of sorted `values[from..to)` that is above `limit`; `to`: none.
export function first_above(values, from, to, limit) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] > limit) to = middle;
    else from = middle + 1;
  }
  return from;
}

// The item of a lane that holds the time, else the nearest within `reach`; -1: none.
export function item_at(items, from, to, time, reach) {
  const starts = items.start ?? items.begin;
  const next = first_above(items.end, from, to, time);
  if (next < to && starts[next] <= time) return next;
  const after = next < to ? starts[next] - time : Infinity;
  const before = next > from ? time - items.end[next - 1] : Infinity;
  if (Math.min(after, before) > reach) return -1;
  return after < before ? next : next - 1;
}

// ---- rows of pixels ----

// Colours to draw with. `rgb` arrays have three numbers 0..255 each; index 0 of `causes` is no
// cause. `matches`: by task, 0 is drawn dim; null: all match.
export class RowPainter {
  constructor(width, colours) {
    this.width = width;
    this.colours = colours;
    this.sum = new Float32Array(4 * (width + 1));
  }

  add(x0, x1, rgb, at) {
    const begin = Math.max(0, x0);
    const end = Math.min(this.width, x1);
    if (!(end > begin)) return;
    const first = Math.floor(begin);
    const last = Math.floor(end);
    if (first === last) {
      this.add_pixel(first, end - begin, rgb, at);
      return;
    }
    this.add_pixel(first, first + 1 - begin, rgb, at);
    for (let x = first + 1; x < last; ++x) this.add_pixel(x, 1, rgb, at);
    if (last < this.width) this.add_pixel(last, end - last, rgb, at);
  }

  add_pixel(x, weight, rgb, at) {
    const sum = this.sum;
    const i = 4 * x;
    sum[i] += weight * rgb[at];
    sum[i + 1] += weight * rgb[at + 1];
    sum[i + 2] += weight * rgb[at + 2];
    sum[i + 3] += weight;
  }

  // Into row `y` of an image of this width; what nothing covers is background.
  flush(pixels, y) {
    const { sum, width, colours: { background } } = this;
    for (let x = 0, i = 0, to = 4 * y * width; x < width; ++x, i += 4, to += 4) {
      const cover = sum[i + 3];
      const scale = cover > 1 ? 1 / cover : 1;
      const rest = cover > 1 ? 0 : 1 - cover;
      pixels[to] = sum[i] * scale + background[0] * rest + 0.5;
      pixels[to + 1] = sum[i + 1] * scale + background[1] * rest + 0.5;
      pixels[to + 2] = sum[i + 2] * scale + background[2] * rest + 0.5;
      pixels[to + 3] = 255;
    }
    sum.fill(0);
  }
}

// What was searched for is drawn at least so wide, in pixels, or one could not see it.
const kLeastMatch = 0.6;

// Tasks and bubbles of a core, exactly: each pixel is the mean of what it covers.
export function paint_items(painter, step, core, range, separator) {
  const { tasks, bubbles } = step;
  const { kernels, dim_kernels, causes, matches } = painter.colours;
  const scale = painter.width / (range.end - range.begin);
  const task_end = tasks.core_begin[core + 1];
  let i = first_above(tasks.end, tasks.core_begin[core], task_end, range.begin);
  for (; i < task_end && tasks.start[i] < range.end; ++i) {
    const x0 = (tasks.start[i] - range.begin) * scale;
    const x1 = (tasks.end[i] - range.begin) * scale;
    const is_dim = matches !== null && !matches[i];
    const least = matches === null || is_dim ? 0 : kLeastMatch;
    const has_gap = separator > 0 && x1 - x0 > 4 * separator;
    const end = has_gap ? x1 - separator : Math.max(x1, x0 + least);
    painter.add(x0, end, is_dim ? dim_kernels : kernels, 3 * tasks.kernel[i]);
  }
  const bubble_end = bubbles.core_begin[core + 1];
  i = first_above(bubbles.end, bubbles.core_begin[core], bubble_end, range.begin);
  for (; i < bubble_end && bubbles.begin[i] < range.end; ++i) {
    const x0 = (bubbles.begin[i] - range.begin) * scale;
    painter.add(x0, (bubbles.end[i] - range.begin) * scale, causes, 3 * (bubbles.cause[i] + 1));
  }
}

// What part of each bucket of a level tasks that match fill, 0..1, and the kernel of the longest.
export function match_level(step, level, matches) {
  const { tasks } = step;
  const { bucket_ns, bucket_count } = level;
  const share = new Float32Array(level.busy.length);
  const longest = new Float32Array(level.busy.length);
  const kernel = new Uint32Array(level.busy.length);
  for (let i = 0; i < tasks.count; ++i) {
    if (!matches[i]) continue;
    const row = tasks.core[i] * bucket_count;
    const last = Math.min(bucket_count, Math.ceil(tasks.end[i] / bucket_ns));
    for (let at = Math.max(0, Math.floor(tasks.start[i] / bucket_ns)); at < last; ++at) {
      const begin = Math.max(tasks.start[i], at * bucket_ns);
      const part = (Math.min(tasks.end[i], (at + 1) * bucket_ns) - begin) / bucket_ns;
      share[row + at] += part;
      if (part > longest[row + at]) {
        longest[row + at] = part;
        kernel[row + at] = tasks.kernel[i];
      }
    }
  }
  return { share, kernel };
}

// The same from a level whose buckets are no longer than a pixel: each bucket is its most frequent
// kernel and its largest cause, by its busy share. `matched`: what match_level() gives, or null.
export function paint_level(painter, level, core, range, matched) {
  const { dim_kernels, causes } = painter.colours;
  const kernels = matched ? dim_kernels : painter.colours.kernels;
  const scale = painter.width / (range.end - range.begin);
  const first = Math.max(0, Math.floor(range.begin / level.bucket_ns));
  const last = Math.min(level.bucket_count, Math.ceil(range.end / level.bucket_ns));
  const offset = core * level.bucket_count;
  const bucket_pixels = level.bucket_ns * scale;
  for (let bucket = first; bucket < last; ++bucket) {
    const at = offset + bucket;
    const x0 = (bucket * level.bucket_ns - range.begin) * scale;
    const middle = x0 + bucket_pixels * (level.busy[at] / 255);
    const share = matched ? matched.share[at] : 0;
    if (share > 0) {
      const end = x0 + Math.max(bucket_pixels * share, kLeastMatch);
      painter.add(x0, end, painter.colours.kernels, 3 * matched.kernel[at]);
    }
    const rest_x = Math.min(middle, x0 + bucket_pixels * share);
    if (level.kernel[at] > 0) painter.add(rest_x, middle, kernels, 3 * (level.kernel[at] - 1));
    if (level.cause[at] > 0) painter.add(middle, x0 + bucket_pixels, causes, 3 * level.cause[at]);
  }
}

// Which level to draw from: the coarsest whose buckets fit a pixel; null: the items themselves.
export function level_for(step, ns_per_pixel, item_count, pixel_count) {
  if (item_count < pixel_count) return null;
  return step.levels.find((level) => level.bucket_ns <= ns_per_pixel) ?? null;
}

// ---- figures ----

// What costs a pass over a large step is made once.
export function once(step, key, make) {
  step.made ??= new Map();
  if (!step.made.has(key)) step.made.set(key, make());
  return step.made.get(key);
}

// Busy cores by kernel in `column_count` equal parts of the step: [kernel * column_count + column].
export function busy_by_kernel(step, column_count) {
  const busy = new Float32Array(step.kernels.length * column_count);
  const { tasks } = step;
  const scale = column_count / Math.max(1, step.window_ns);
  for (let i = 0; i < tasks.count; ++i) {
    const x0 = Math.max(0, tasks.start[i] * scale);
    const x1 = Math.min(column_count, tasks.end[i] * scale);
    const row = tasks.kernel[i] * column_count;
    for (let x = Math.floor(x0); x < x1; ++x) {
      busy[row + x] += Math.min(x1, x + 1) - Math.max(x0, x);
    }
  }
  return busy;
}

export function run_ns_by_kernel(step) {
  const run_ns = new Float64Array(step.kernels.length);
  const { tasks } = step;
  for (let i = 0; i < tasks.count; ++i) run_ns[tasks.kernel[i]] += tasks.end[i] - tasks.start[i];
  return run_ns;
}

// Busy and idle time by core: causes_ns[core * cause count + cause].
export function partition_of(step) {
  const { tasks, bubbles } = step;
  const cause_count = step.causes.length;
  const busy_ns = new Float64Array(step.cores.length);
  const causes_ns = new Float64Array(step.cores.length * cause_count);
  for (let i = 0; i < tasks.count; ++i) busy_ns[tasks.core[i]] += tasks.end[i] - tasks.start[i];
  for (let i = 0; i < bubbles.count; ++i) {
    const at = bubbles.core[i] * cause_count + bubbles.cause[i];
    causes_ns[at] += bubbles.end[i] - bubbles.begin[i];
  }
  return { busy_ns, causes_ns };
}

// Indexes of the `limit` largest, the largest first; ties in order.
export function largest_indexes(count, limit, value_of) {
  const kept = [];
  for (let i = 0; i < count; ++i) {
    const value = value_of(i);
    if (kept.length === limit && value <= kept[limit - 1].value) continue;
    let at = kept.length;
    while (at > 0 && kept[at - 1].value < value) --at;
    kept.splice(at, 0, { index: i, value });
    if (kept.length > limit) kept.pop();
  }
  return kept.map((entry) => entry.index);
}

// Heights of bins by series: of equal bins, or of equal ratios when the values are wide apart.
// value_of(i), and series_of(i) below series_count; heights are counts, or sums of the values when
// `is_weighted`. edges: one more than bins; sums[series][bin].
export function make_histogram({ count, value_of, series_of, series_count = 1, is_weighted },
  bin_count) {
  let low = Infinity;
  let high = -Infinity;
  for (let i = 0; i < count; ++i) {
    low = Math.min(low, value_of(i));
    high = Math.max(high, value_of(i));
  }
  if (!(high >= low)) return { edges: [], sums: [], is_log: false };
  const is_log = low > 0 && high / low > 20;
  if (high === low) high = low + Math.max(1, low * 0.01);
  const bins = is_log ? bin_count : Math.max(1, Math.min(bin_count, Math.ceil(high - low)));
  const at = is_log ? Math.log : (value) => value;
  const first = at(low);
  const scale = bins / (at(high) - first);
  const sums = Array.from({ length: series_count }, () => new Float64Array(bins));
  for (let i = 0; i < count; ++i) {
    const value = value_of(i);
    const bin = Math.min(bins - 1, Math.floor((at(value) - first) * scale));
    sums[series_of ? series_of(i) : 0][bin] += is_weighted ? value : 1;
  }
  const back = is_log ? Math.exp : (value) => value;
  const edges = Array.from({ length: bins }, (none, i) => back(first + i / scale));
  return { edges: [...edges, high], sums, is_log };
}

// Which tasks a query names: every word must be part of the kernel's or core's name, or be the id
// ("17" or "#17") or the layer ("layer:3"). null: the query is empty.
export function match_tasks(step, query) {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
  if (words.length === 0) return null;
  const { tasks } = step;
  const matches = new Uint8Array(tasks.count).fill(1);
  for (const word of words) {
    const kernels = step.kernels.map((name) => name.toLowerCase().includes(word));
    const cores = step.cores.map((core) => core.name.toLowerCase().includes(word));
    const id = /^#?\d+$/.test(word) ? Number(word.replace('#', '')) : NaN;
    const layer = /^layer:\d+$/.test(word) ? Number(word.slice(6)) : NaN;
    for (let i = 0; i < tasks.count; ++i) {
      if (!(kernels[tasks.kernel[i]] || cores[tasks.core[i]] || tasks.id[i] === id ||
            tasks.layer[i] === layer)) matches[i] = 0;
    }
  }
  return matches;
}

// The seven times of a task: relative to the step, and since the one before that was recorded.
export function task_times(tasks, task) {
  let before = NaN;
  return kTimeNames.map((name) => {
    const at = tasks[name][task];
    const since = at - before;
    if (!Number.isNaN(at)) before = at;
    return { name, at, since };
  });
}
