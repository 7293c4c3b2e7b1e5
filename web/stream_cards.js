// SPDX-License-Identifier: Apache-2.0
//
// Tiles and cards about a capture of streams: where the time of each device went, gaps in which it
// runs nothing, kernels, spread. What cards.js says about cores would mean nothing here.
import { bins_for, chart_tip, kernel_clicks, kernel_column, number_column } from './cards.js';
import { part_tip, roofline_card, steps_card } from './cards.js';
import { button, card, element, histogram_view, make_table, part_list } from './charts.js';
import { stacked_bar } from './charts.js';
import { task_name } from './details.js';
import { format_count, format_ns, format_share, largest_indexes } from './page_data.js';
import { make_histogram, once, partition_of } from './page_data.js';
import { device_gaps, device_parts, worst_device } from './stream_data.js';

const kLongestGaps = 60;

function count_text(count, one, many) {
  return `${format_count(count)} ${count === 1 ? one : many}`;
}

// ---- tiles ----

function idle_note(device) {
  if (device.idle_ns === 0) return 'never';
  const gaps = count_text(device.idle_count, 'gap', 'gaps');
  if (device.idle_unknown_ns >= device.idle_ns) return `${gaps}; launches not known`;
  return `${format_share(device.idle_for_launch_ns / device.step_ns)} not launched yet; ${gaps}`;
}

// Of several devices, those of the one that computes least.
export function stream_tiles(step) {
  const { report } = step;
  const device = worst_device(step);
  const lengths = report.step_lengths_ns ?? [];
  const spread = `${format_ns(lengths[0])} to ${format_ns(lengths[lengths.length - 1])}`;
  const several = `step ${report.step}; ${lengths.length} steps, ${spread}`;
  const part_tile = (name, ns, note) =>
    [name, format_share(ns / device.step_ns), note ?? format_ns(ns), ns / device.step_ns];
  const of_device = report.devices.length > 1
    ? `${device.device}, which computes least` : `of the time of ${device.device}`;
  const busy = report.average_busy_cores;
  return [
    ['step', format_ns(step.window_ns, 4), lengths.length > 1 ? several : 'one step'],
    part_tile('computing', device.compute_ns, of_device),
    part_tile('communicating alone', device.communication_alone_ns),
    ...(device.copy_alone_ns > 0 ? [part_tile('copying alone', device.copy_alone_ns)] : []),
    part_tile('idle', device.idle_ns, idle_note(device)),
    ['kernels', format_count(step.task_count),
      `of ${count_text((report.kernels ?? []).length, 'type', 'types')}`],
    ['streams', format_count(step.cores.length),
      Number.isFinite(busy) ? `${busy.toFixed(2)} busy on average` : ''],
  ];
}

// ---- the devices ----

function device_view(page, device, has_name) {
  const parts = device_parts(device).filter((part) => part.ns > 0)
    .map((part) => ({ ...part, colour: page.colours.device_part(part.label) }));
  return element('div', { class: 'device' },
    has_name ? element('h3', { text: device.device }) : null,
    stacked_bar(parts, device.step_ns, 'whole', (part, event) =>
      part_tip(page, part, device.step_ns, event)),
    part_list(parts, device.step_ns));
}

function stream_bars(page, step, busy_ns, is_by_busy) {
  const order = step.cores.map((core, index) => index);
  if (is_by_busy) order.sort((a, b) => busy_ns[b] - busy_ns[a] || a - b);
  const is_tall = order.length > 16;
  return element('div', { class: is_tall ? 'cores tall' : 'cores' }, ...order.map((stream) => {
    const { name } = step.cores[stream];
    const parts = [{ label: 'busy', ns: busy_ns[stream], colour: 'var(--busy)' }];
    return element('div', { class: 'core' },
      element('span', { class: 'core_name', text: name, title: name }),
      stacked_bar(parts, step.window_ns, is_tall ? 'tall' : '', (part, event) =>
        part_tip(page, part, step.window_ns, event, name)),
      element('span', { class: 'core_share', text: format_share(busy_ns[stream] /
        step.window_ns) }));
  }));
}

function devices_card(page, step) {
  const { devices } = step.report;
  const { busy_ns } = once(step, 'partition', () => partition_of(step));
  const bars = element('div');
  const memory = page.memory_of('streams');
  const orders = ['by name', 'by busy'].map((text, i) =>
    button(text, 'Order of the streams', () => show(i === 1)));
  const show = (is_by_busy) => {
    memory.is_by_busy = is_by_busy;
    orders.forEach((one, i) => one.setAttribute('aria-pressed', String(i === Number(is_by_busy))));
    bars.replaceChildren(stream_bars(page, step, busy_ns, is_by_busy));
  };
  show(Boolean(memory.is_by_busy));
  const is_one = devices.length === 1;
  const title = is_one ? `Where the time of ${devices[0].device} went`
    : 'Where the time of the devices went';
  return card(title, format_ns(step.window_ns), 'wide devices',
    ...devices.map((device) => device_view(page, device, !is_one)),
    element('div', { class: 'row_head' }, element('h3', { text: 'Busy time of each stream' }),
      element('span', { class: 'group', role: 'group' }, ...orders)), bars);
}

// ---- gaps ----

function launch_text(row) {
  if (Number.isNaN(row.launch)) return '–';
  const late_ns = row.launch - row.begin;
  return late_ns <= 0 ? 'before it' : `${format_ns(late_ns)} into it`;
}

function gaps_card(page, timeline) {
  const { step } = timeline;
  const gaps = once(step, 'gaps', () => device_gaps(step));
  const length_of = (gap) => gap.end - gap.begin;
  const rows = once(step, 'longest gaps', () =>
    largest_indexes(gaps.length, kLongestGaps, (i) => length_of(gaps[i])).map((i) => gaps[i]));
  const item_of = (gap) => ({ kind: 'task', index: gap.before >= 0 ? gap.before : gap.after });
  const name_of = (task, none) => (task < 0 ? none : task_name(step, task));
  const columns = [
    number_column('length', length_of, format_ns),
    number_column('at', (gap) => gap.begin, (ns) => format_ns(ns, 4)),
    { title: 'after', value: (gap) => name_of(gap.before, 'the begin') },
    { title: 'before', value: (gap) => name_of(gap.after, 'the end') },
  ];
  if (new Set(gaps.map((gap) => gap.device)).size > 1) {
    columns.splice(2, 0, { title: 'device', value: (gap) => gap.device });
  }
  if (gaps.some((gap) => !Number.isNaN(gap.launch))) {
    columns.push({ ...number_column('launched', (gap) => gap.launch - gap.begin, format_ns),
      text: launch_text });
  }
  const sum_ns = gaps.reduce((sum, gap) => sum + length_of(gap), 0);
  const what = `${format_count(gaps.length)} in all, ${format_ns(sum_ns)}`;
  return card('Longest gaps', what, 'narrow gaps', make_table({
    rows, limit: 10, memory: page.memory_of('gaps'), columns,
    empty: 'Something ran all the time.',
    on_click: (gap) => {
      if (item_of(gap).index < 0) return;
      page.select(timeline, item_of(gap), false);
      page.zoom_to_times(timeline, gap);
      page.bring_into_view(timeline, item_of(gap));
    },
    is_chosen: (gap) => page.is_selected(timeline, 'task', item_of(gap).index),
  }));
}

// ---- kernels, spread ----

function stream_kernels_card(page, step) {
  const rows = step.report.kernels ?? [];
  const largest = Math.max(...rows.map((row) => row.core_ns), 1);
  const where = `${count_text(rows.length, 'type', 'types')} on ` +
    count_text(step.cores.length, 'stream', 'streams');
  return card('Kernels', where, 'wide kernels', make_table({
    rows, limit: 12, empty: 'No kernel ran.', memory: page.memory_of('kernels'),
    ...kernel_clicks(page),
    columns: [
      kernel_column(page),
      number_column('runs', (row) => row.runs, format_count),
      number_column('time', (row) => row.core_ns, format_ns),
      { ...number_column('of the step', (row) => row.core_ns / Math.max(1, step.window_ns),
        format_share), bar: (row) => row.core_ns / largest },
      number_column('median', (row) => row.median_ns, format_ns),
      number_column('longest', (row) => row.max_ns, format_ns),
    ],
  }));
}

function stream_spread_card(page, step) {
  const { tasks } = step;
  const name = page.chosen_kernel !== null && step.kernels.includes(page.chosen_kernel)
    ? page.chosen_kernel : page.colours.ranked_kernels.find((one) => step.kernels.includes(one));
  const kernel = step.kernels.indexOf(name);
  const runs = [];
  for (let i = 0; i < tasks.count; ++i) {
    if (tasks.kernel[i] === kernel) runs.push(tasks.end[i] - tasks.start[i]);
  }
  const gaps = once(step, 'gaps', () => device_gaps(step));
  const lengths = make_histogram({ count: gaps.length, is_weighted: true,
    value_of: (i) => gaps[i].end - gaps[i].begin }, bins_for(gaps.length));
  return card('Spread', null, 'narrow spread',
    element('h3', { text: `Run time of ${name ?? 'kernels'}` }),
    histogram_view({ colours: [page.colours.kernel(name)],
      histogram: make_histogram({ count: runs.length, value_of: (i) => runs[i] },
        bins_for(runs.length)),
      on_hover: (range, value, event) => chart_tip(page, range, `${value} runs`, event) }),
    element('h3', { text: 'Idle time by length of the gap' }),
    histogram_view({ histogram: lengths, is_weighted: true, colours: ['var(--quiet)'],
      on_hover: (range, value, event) => chart_tip(page, range, `${value} idle`, event) }));
}

// All cards about a step of streams.
export function make_stream_cards(page, timeline) {
  const { step } = timeline;
  return [devices_card(page, step), gaps_card(page, timeline), stream_kernels_card(page, step),
    stream_spread_card(page, step), roofline_card(page, step), steps_card(page, step)]
    .filter((one) => one !== null);
}
