// SPDX-License-Identifier: Apache-2.0
//
// The cards below the timeline, each about one step: partition, what-if gains, kernels, critical
// path, bubbles, histograms, steps, layers, roofline. Rows and bars choose in the timeline.
import { button, card, element, histogram_view, length_bars } from './charts.js';
import { make_table, part_list, stacked_bar } from './charts.js';
import { kCauseWords, kPartWords, task_name } from './details.js';
import { format_count, format_ns, format_rate, format_share } from './page_data.js';
import { first_above, largest_indexes, make_histogram, once } from './page_data.js';
import { partition_of } from './page_data.js';

const kLargestBubbles = 60;
const kMaxStepBars = 200;

export function number_column(title, value, text) {
  return { title, value, text: (row) => text(value(row)), is_number: true };
}

export function kernel_column(page, title = 'kernel') {
  return { title, value: (row) => row.name, swatch: (row) => page.colours.kernel(row.name) };
}

// Rows of a table that choose a kernel.
export function kernel_clicks(page) {
  return {
    on_click: (row) => page.choose_kernel(row.name),
    is_chosen: (row) => page.chosen_kernel === row.name,
  };
}

export function part_tip(page, part, total_ns, event, title) {
  if (!part) {
    page.hide_tip();
    return;
  }
  const words = kCauseWords[part.label];
  page.show_tip([element('h3', null, element('span', { text: title ?? part.label })),
    element('p', null, element('b', { text: format_share(part.ns / total_ns) }),
      `  ${format_ns(part.ns)}${title ? ` ${part.label}` : ''}`),
    words ? element('p', { class: 'quiet', text: words }) : null], event);
}

// ---- partition ----

function partition_parts(page, step, busy_ns, cause_ns) {
  const causes = step.causes.map((name, cause) => ({
    label: name, ns: cause_ns(cause), colour: page.colours.cause(name),
    title: kCauseWords[name], is_chosen: page.chosen_cause === name,
    on_click: () => page.choose_cause(name),
  })).filter((part) => part.ns > 0);
  return [{ label: 'busy', ns: busy_ns, colour: 'var(--busy)' }, ...causes];
}

function core_bars(page, step, partition, is_by_busy) {
  const order = step.cores.map((core, index) => index);
  if (is_by_busy) order.sort((a, b) => partition.busy_ns[b] - partition.busy_ns[a] || a - b);
  const is_tall = order.length > 10;
  return element('div', { class: is_tall ? 'cores tall' : 'cores' }, ...order.map((core) => {
    const { name } = step.cores[core];
    const parts = partition_parts(page, step, partition.busy_ns[core],
      (cause) => partition.causes_ns[core * step.causes.length + cause]);
    const busy = format_share(partition.busy_ns[core] / step.window_ns);
    return element('div', { class: 'core' }, element('span', { class: 'core_name', text: name }),
      stacked_bar(parts, step.window_ns, is_tall ? 'tall' : '', (part, event) =>
        part_tip(page, part, step.window_ns, event, name)),
      element('span', { class: 'core_share', text: busy }));
  }));
}

function partition_card(page, step) {
  const partition = once(step, 'partition', () => partition_of(step));
  const total_ns = Math.max(1, step.window_ns * step.cores.length);
  const sum_cause = (cause) => step.cores.reduce((sum, core, index) =>
    sum + partition.causes_ns[index * step.causes.length + cause], 0);
  const busy_ns = partition.busy_ns.reduce((sum, ns) => sum + ns, 0);
  const parts = partition_parts(page, step, busy_ns, sum_cause);
  const sorted = [parts[0], ...parts.slice(1).sort((a, b) => b.ns - a.ns)];
  const cores = element('div');
  const orders = ['by name', 'by busy'].map((text, i) =>
    button(text, 'Order of the cores', () => show(i === 1)));
  const memory = page.memory_of('partition');
  const show = (is_by_busy) => {
    memory.is_by_busy = is_by_busy;
    orders.forEach((one, i) => one.setAttribute('aria-pressed', String(i === Number(is_by_busy))));
    cores.replaceChildren(core_bars(page, step, partition, is_by_busy));
  };
  show(Boolean(memory.is_by_busy));
  const { cores: { length: count }, window_ns } = step;
  const what = `${count} cores × ${format_ns(window_ns)} = ${format_ns(window_ns * count)}`;
  return card('Where the core time went', what, 'wide partition',
    stacked_bar(parts, total_ns, 'whole', (part, event) => part_tip(page, part, total_ns, event)),
    part_list(sorted, total_ns),
    element('div', { class: 'row_head' }, element('h3', { text: 'Each core' }),
      element('span', { class: 'group', role: 'group' }, ...orders)), cores);
}

// ---- tables ----

function whatif_card(page, step) {
  const { what_if: changes, efficiencies } = step.report;
  const parts = [];
  if (efficiencies) {
    const terms = [['parallelism', efficiencies.parallelism], ['schedule', efficiencies.schedule],
      ['overhead', efficiencies.overhead]];
    parts.push(element('p', { class: 'formula' },
      element('b', { text: format_share(efficiencies.product) }), element('span', { text: 'busy' }),
      ...terms.flatMap(([name, value], i) => [element('em', { text: i === 0 ? '=' : '×' }),
        element('b', { text: format_share(value) }), element('span', { text: name })])));
  }
  const rows = changes?.lines ?? [];
  const largest = Math.max(...rows.map((row) => Math.abs(row.gain)), 1e-9);
  const kernel_of = (row) => step.kernels.find((name) => row.what.startsWith(`${name} in half`));
  parts.push(make_table({
    rows, limit: 9, memory: page.memory_of('whatif'), empty: 'No replay: see the notes.',
    columns: [
      { title: 'if', value: (row) => row.what },
      { title: 'gain', value: (row) => row.gain, text: (row) => format_share(row.gain),
        is_number: true, bar: (row) => row.gain / largest },
      number_column('step', (row) => row.makespan_ns, format_ns),
    ],
    on_click: (row) => kernel_of(row) && page.choose_kernel(kernel_of(row)),
    is_chosen: (row) => page.chosen_kernel !== null && kernel_of(row) === page.chosen_kernel,
  }));
  const error = changes ? `replay is off by ${format_share(changes.replay_error)}` : '';
  return card('What would change it', error, 'narrow', ...parts);
}

function kernels_card(page, step) {
  const { report } = step;
  const path_ns = new Map((report.critical_path?.kernels ?? []).map((row) => [row.name, row.ns]));
  const rows = (report.kernels ?? []).map((row) => ({ ...row, path: path_ns.get(row.name) ?? 0 }));
  const total = step.cores.length * step.window_ns || 1;  // as the text of the report has it
  const largest = Math.max(...rows.map((row) => row.core_ns), 1);
  const where = `${rows.length} on ${step.cores.length} cores`;
  return card('Kernels', where, 'wide kernels', make_table({
    rows, limit: 12, empty: 'No kernel ran.', memory: page.memory_of('kernels'),
    ...kernel_clicks(page),
    columns: [
      kernel_column(page),
      number_column('runs', (row) => row.runs, format_count),
      number_column('core time', (row) => row.core_ns, format_ns),
      { ...number_column('share', (row) => row.core_ns / total, format_share),
        bar: (row) => row.core_ns / largest },
      number_column('median', (row) => row.median_ns, format_ns),
      number_column('longest', (row) => row.max_ns, format_ns),
      number_column('on the path', (row) => row.path, (ns) => (ns > 0 ? format_ns(ns) : '–')),
    ],
  }));
}

// Selects the longest stretch of a part.
function select_path_part(page, timeline, name) {
  const { path, path_parts } = timeline.step;
  const [longest] = largest_indexes(path.count, 1, (i) =>
    (path_parts[path.part[i]] === name ? path.end[i] - path.begin[i] : -1));
  if (longest === undefined) return;
  const is_run = name === 'run' && path.task[longest] >= 0;
  page.select(timeline, is_run ? { kind: 'task', index: path.task[longest] }
    : { kind: 'path', index: longest }, true);
}

function path_card(page, timeline) {
  const { step } = timeline;
  const { critical_path: path, longest_chain: chain } = step.report;
  if (!path) return null;
  const entries = Object.entries(path.parts_ns ?? {}).filter(([, ns]) => ns > 0);
  const parts = entries.map(([name, ns]) => ({
    label: name, ns, colour: name === 'run' ? 'var(--busy)' : page.colours.path_part(name),
    title: `${kPartWords[name] ?? name}: select the longest`,
    on_click: () => select_path_part(page, timeline, name),
  }));
  const rows = path.kernels ?? [];
  const largest = Math.max(...rows.map((row) => row.ns), 1);
  const chain_text = chain
    ? `longest chain ${format_ns(chain.ns)}, ${format_count(chain.tasks)} tasks` : '';
  return card('Critical path', chain_text, 'narrow',
    stacked_bar(parts, step.window_ns, 'whole', (part, event) =>
      part_tip(page, part, step.window_ns, event)),
    part_list(parts.slice().sort((a, b) => b.ns - a.ns), step.window_ns),
    make_table({
      rows, limit: 6, empty: 'No task is on it.', memory: page.memory_of('path'),
      ...kernel_clicks(page),
      columns: [kernel_column(page, 'runs on it'),
        number_column('runs', (row) => row.runs, format_count),
        number_column('time', (row) => row.ns, format_ns),
        { ...number_column('of the step', (row) => row.ns / step.window_ns, format_share),
          bar: (row) => row.ns / largest }],
    }));
}

function bubbles_card(page, timeline) {
  const { step } = timeline;
  const { bubbles, tasks } = step;
  const length_of = (i) => bubbles.end[i] - bubbles.begin[i];
  const next_of = (i) => {
    const [from, to] = [tasks.core_begin[bubbles.core[i]], tasks.core_begin[bubbles.core[i] + 1]];
    const next = first_above(tasks.end, from, to, bubbles.begin[i]);
    return next < to ? task_name(step, next) : 'end of the step';
  };
  const largest = once(step, 'largest bubbles', () =>
    largest_indexes(bubbles.count, kLargestBubbles, length_of));
  const rows = largest.map((index) => ({
    index, cause: step.causes[bubbles.cause[index]], core: step.cores[bubbles.core[index]].name,
    begin: bubbles.begin[index], length: length_of(index), next: next_of(index),
  }));
  return card('Largest bubbles', `${format_count(bubbles.count)} in all`, 'wide', make_table({
    rows, limit: 10, memory: page.memory_of('bubbles'), empty: 'No core was ever idle.',
    columns: [
      { title: 'cause', value: (row) => row.cause, swatch: (row) => page.colours.cause(row.cause) },
      number_column('length', (row) => row.length, format_ns),
      { title: 'core', value: (row) => row.core },
      number_column('from', (row) => row.begin, (ns) => format_ns(ns, 4)),
      { title: 'before', value: (row) => row.next },
    ],
    on_click: (row) => page.select(timeline, { kind: 'bubble', index: row.index }, true),
    is_chosen: (row) => page.is_selected(timeline, 'bubble', row.index),
  }));
}

// ---- histograms, steps ----

export function chart_tip(page, title, value, event) {
  if (title === null) page.hide_tip();
  else page.show_tip([element('h3', { text: title }), element('p', { text: value })], event);
}

// Few values have few bins.
export function bins_for(count) {
  return Math.max(8, Math.min(40, Math.ceil(2 * Math.sqrt(count))));
}

function histograms_card(page, step) {
  const { tasks, bubbles } = step;
  const name = page.chosen_kernel !== null && step.kernels.includes(page.chosen_kernel)
    ? page.chosen_kernel : page.colours.ranked_kernels.find((one) => step.kernels.includes(one));
  const kernel = step.kernels.indexOf(name);
  const runs = [];
  for (let i = 0; i < tasks.count; ++i) {
    if (tasks.kernel[i] === kernel) runs.push(tasks.end[i] - tasks.start[i]);
  }
  const idle = once(step, 'idle histogram', () => make_histogram({
    count: bubbles.count, value_of: (i) => bubbles.end[i] - bubbles.begin[i],
    series_of: (i) => bubbles.cause[i], series_count: step.causes.length, is_weighted: true,
  }, bins_for(bubbles.count)));
  return card('Spread', null, 'narrow spread',
    element('h3', { text: `Run time of ${name ?? 'kernels'}` }),
    histogram_view({ colours: [page.colours.kernel(name)],
      histogram: make_histogram({ count: runs.length, value_of: (i) => runs[i] },
        bins_for(runs.length)),
      on_hover: (range, value, event) => chart_tip(page, range, `${value} runs`, event) }),
    element('h3', { text: 'Idle core time by length of the bubble' }),
    histogram_view({ histogram: idle, is_weighted: true,
      colours: step.causes.map((cause) => page.colours.cause(cause)),
      on_hover: (range, value, event) => chart_tip(page, range, `${value} idle`, event) }));
}

export function steps_card(page, step) {
  const lengths = step.report.step_lengths_ns ?? [];
  if (lengths.length < 2) return null;
  const distance = (length) => Math.abs(length - step.window_ns);
  const explained = lengths.reduce((best, length, i) =>
    (distance(length) < distance(lengths[best]) ? i : best), 0);
  // They are sorted, so every so many of them show the same.
  const every = Math.ceil(lengths.length / kMaxStepBars);
  const shown = lengths.filter((length, i) => i % every === explained % every);
  const spread = `${format_ns(lengths[0])} to ${format_ns(lengths[lengths.length - 1])}`;
  return card('Steps by length', `${format_count(lengths.length)}, ${spread}`, 'half',
    length_bars(shown, Math.floor(explained / every), (length, event) =>
      chart_tip(page, length === null ? null : format_ns(length, 4), 'one step', event)),
    element('p', { class: 'quiet', text: 'The dark one is explained.' }));
}

// ---- what only some traces have ----

function layers_card(page, step) {
  const { groups } = step.report;
  const rows = groups?.kernels ?? [];
  if (rows.length === 0) return null;
  const text = `${format_count(groups.layers)} ${groups.layers === 1 ? 'layer' : 'layers'}`;
  const mean = (value) => (Number.isFinite(value) ? value.toFixed(1) : '–');
  return card('Tasks per layer', text, 'half', make_table({
    rows, limit: 12, memory: page.memory_of('layers'), ...kernel_clicks(page),
    columns: [
      kernel_column(page),
      number_column('tasks', (row) => row.tasks, format_count),
      number_column('layers', (row) => row.layers, format_count),
      number_column('a layer', (row) => row.median_per_layer, format_count),
      number_column('most', (row) => row.max_per_layer, format_count),
      number_column('fan-in', (row) => row.mean_producers, mean),
      number_column('most', (row) => row.max_producers, format_count),
      number_column('fan-out', (row) => row.mean_consumers, mean),
      number_column('most', (row) => row.max_consumers, format_count),
    ],
  }));
}

export function roofline_card(page, step) {
  const rows = step.report.roofline?.kernels ?? [];
  if (rows.length === 0) return null;
  const limits = step.report.roofline;
  const has_limits = limits.limit_bytes_per_second > 0 || limits.limit_flops_per_second > 0;
  const bound = (row) => (!has_limits ? '–' : row.is_memory_bound ? 'memory' : 'compute');
  const text = has_limits ? 'against what the device can do' : 'limits of the device not recorded';
  return card('Roofline', text, 'half', make_table({
    rows, limit: 12, memory: page.memory_of('roofline'), ...kernel_clicks(page),
    columns: [
      kernel_column(page),
      number_column('bytes', (row) => row.bytes_per_second, (rate) => format_rate(rate, 'B/s')),
      number_column('flops', (row) => row.flops_per_second, (rate) => format_rate(rate, 'flop/s')),
      number_column('at once', (row) => row.mean_concurrency, (value) => value.toFixed(1)),
      { ...number_column('of the limit', (row) => row.share_of_limit, format_share),
        bar: (row) => row.share_of_limit },
      { title: 'bound by', value: bound },
    ],
  }));
}

// All cards about the step of a timeline.
export function make_cards(page, timeline) {
  const { step } = timeline;
  return [partition_card(page, step), whatif_card(page, step), kernels_card(page, step),
    path_card(page, timeline), bubbles_card(page, timeline), histograms_card(page, step),
    layers_card(page, step), roofline_card(page, step), steps_card(page, step)]
    .filter((one) => one !== null);
}
