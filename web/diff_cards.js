// SPDX-License-Identifier: Apache-2.0
//
// What differs between two steps: the sentence, the tiles and the tables, of the data that
// src/report/diff_json.cc makes. Where it is not there, the two reports have to do.
import { card, element, make_table } from './charts.js';
import { kCauseWords } from './details.js';
import { format_count, format_ns, format_share } from './page_data.js';
import { device_parts, is_of_streams, worst_device } from './stream_data.js';

// {first, second} of any figure; absent ones are NaN.
function both(pair) {
  return { first: pair?.first ?? NaN, second: pair?.second ?? NaN };
}

function signed(ns) {
  if (!Number.isFinite(ns)) return '–';
  return `${ns < 0 ? '−' : '+'}${format_ns(Math.abs(ns))}`;
}

function change(pair) {
  const { first, second } = both(pair);
  const share = second / first - 1;
  if (!Number.isFinite(share)) return '';
  return `${share < 0 ? '−' : '+'}${format_share(Math.abs(share))}`;
}

function makespans(diff, steps) {
  return { first: diff.first?.makespan_ns ?? steps[0].window_ns,
    second: diff.second?.makespan_ns ?? steps[1].window_ns };
}

// Notes of what is shown: nothing that is shown of streams needs edges or the times of a scheduler.
const kNotesOfCores = /\b(no edges|no ready times|no task has a submit time|critical path)\b/;

export function diff_notes(diff, steps) {
  const notes = diff?.notes ?? [];
  return steps.every(is_of_streams) ? notes.filter((note) => !kNotesOfCores.test(note)) : notes;
}

// How much is different, with its evidence in brackets, as it is; what makes up most of it, of the
// parts of the device's time.
function stream_verdict(verdict, steps) {
  const evidence_end = verdict.indexOf(')') + 1;
  if (evidence_end === 0) return verdict;
  const rows = device_rows(steps);
  const whole = rows.reduce((sum, row) => sum + row.effect_ns, 0);
  const [largest] = rows.sort((a, b) => (b.effect_ns - a.effect_ns) * Math.sign(whole));
  const head = verdict.slice(0, evidence_end);
  if (whole === 0) return head;
  const what = largest.effect_ns / whole >= 0.6 ? 'most of it is' : 'the largest part is';
  return `${head}; ${what} ${largest.name} (${signed(largest.effect_ns)})`;
}

export function diff_verdict(diff, steps) {
  if (diff.verdict && steps.every(is_of_streams)) return stream_verdict(diff.verdict, steps);
  if (diff.verdict) return diff.verdict;
  const { first, second } = makespans(diff, steps);
  const how = second < first ? 'shorter' : 'longer';
  return `B is ${format_ns(Math.abs(second - first))} ${how}: ` +
    `${format_ns(first)} became ${format_ns(second)}`;
}

export function diff_tiles(diff, steps) {
  const lengths = makespans(diff, steps);
  const figure = (read) => ({ first: read(steps[0].report), second: read(steps[1].report) });
  const pair_tile = (name, pair, format, note) => [name,
    `${format(pair.first)} → ${format(pair.second)}`, note ?? change(pair)];
  const busy = figure((report) => report.average_busy_cores);
  const cores = steps.map((step) => step.cores.length);
  const ratio = diff.ratio?.value ?? lengths.second / lengths.first;
  const interval = diff.ratio?.has_interval
    ? `95 %: ${diff.ratio.low.toFixed(3)} to ${diff.ratio.high.toFixed(3)}` : 'B over A';
  const tiles = [
    pair_tile('step', lengths, format_ns),
    ['difference', signed(lengths.second - lengths.first), change(lengths)],
    ['ratio', Number.isFinite(ratio) ? ratio.toFixed(3) : '–', interval],
  ];
  if (steps.every(is_of_streams)) {
    const devices = steps.map(worst_device);
    const share_tile = (name, key) => {
      const [first, second] = devices.map((device) => device[key]);
      return pair_tile(name, { first: first / devices[0].step_ns,
        second: second / devices[1].step_ns }, format_share, signed(second - first));
    };
    return [...tiles, share_tile('computing', 'compute_ns'),
      share_tile('communicating alone', 'communication_alone_ns'), share_tile('idle', 'idle_ns')];
  }
  return [...tiles,
    pair_tile('busy cores', busy, (value) => value?.toFixed(1) ?? '–',
      `of ${cores.join(' and ')}`),
    pair_tile('overhead', figure((report) => overhead_share(report)),
      (value) => value === undefined ? '–' : format_share(value), 'of dispatch to finish'),
    pair_tile('longest chain', figure((report) => report.longest_chain?.ns), format_ns),
  ];
}

// Not known where no task has a dispatch and a finish.
function overhead_share(report) {
  return report.task_overhead?.tasks > 0 ? report.task_overhead.share : undefined;
}

function pair_columns(title, read, format) {
  return [
    { title, value: (row) => both(read(row)).first, is_number: true,
      text: (row) => format(both(read(row)).first) },
    { title: '→', value: (row) => both(read(row)).second, is_number: true,
      text: (row) => format(both(read(row)).second) },
  ];
}

function effect_column(title, read, largest) {
  return { title, value: read, is_number: true, text: (row) => signed(read(row)),
    bar: (row) => read(row) / largest, is_signed: true };
}

function largest_of(rows, read) {
  return Math.max(1, ...rows.map((row) => Math.abs(read(row)) || 0));
}

// Of streams the effect is the difference of the time itself, for streams are no cores.
function kernels_diff_card(page, rows, is_streams) {
  const read = (row) => (is_streams ? both(row.run_ns).second - both(row.run_ns).first
    : row.wall_effect_ns);
  const name_of = (row) => (row.second_name && row.second_name !== row.name
    ? `${row.name} → ${row.second_name}` : row.name);
  const what = is_streams ? 'time on all streams' : 'effect: core time over cores';
  return card('Kernels, A → B', what, 'wide', make_table({
    rows, limit: 12, empty: 'No kernel ran.', memory: page.memory_of('kernels diff'),
    columns: [
      { title: 'kernel', value: name_of, swatch: (row) => page.colours.kernel(row.name) },
      ...pair_columns('runs', (row) => row.count, format_count),
      ...pair_columns(is_streams ? 'time' : 'core time', (row) => row.run_ns, format_ns),
      ...(is_streams ? [] : pair_columns('on the path', (row) => row.path_ns, format_ns)),
      effect_column(is_streams ? 'difference' : 'effect', read, largest_of(rows, read)),
    ],
    on_click: (row) => page.choose_kernel(row.name,
      [...(row.first_names ?? []), ...(row.second_names ?? [])]),
    is_chosen: (row) => page.chosen_kernel === row.name,
  }));
}

function causes_diff_card(page, rows) {
  const read = (row) => row.effect_ns;
  const title = 'Idle by cause, A → B';
  return card(title, 'effect: idle time over cores', '', make_table({
    rows, limit: 12, memory: page.memory_of('causes diff'),
    columns: [
      { title: 'cause', value: (row) => row.name, swatch: (row) => page.colours.cause(row.name) },
      ...pair_columns('idle', (row) => row.ns, format_ns),
      effect_column('effect', read, largest_of(rows, read)),
    ],
    on_click: (row) => row.name in kCauseWords && page.choose_cause(row.name),
    is_chosen: (row) => page.chosen_cause === row.name,
  }));
}

// The parts of the time of the device that computes least on either side.
function device_rows(steps) {
  const [first, second] = steps.map((step) => device_parts(worst_device(step)));
  return first.map(({ label, ns }, i) => ({ name: label, ns: { first: ns, second: second[i].ns },
    effect_ns: second[i].ns - ns }));
}

function devices_diff_card(page, steps) {
  const rows = device_rows(steps).filter((row) => row.ns.first !== 0 || row.ns.second !== 0);
  const read = (row) => row.effect_ns;
  const names = new Set(steps.map((step) => worst_device(step).device));
  const title = `Time of ${Array.from(names).join(' → ')}, A → B`;
  return card(title, null, 'narrow', make_table({
    rows, limit: 12, memory: page.memory_of('devices diff'),
    columns: [
      { title: 'part', value: (row) => row.name,
        swatch: (row) => page.colours.device_part(row.name) },
      ...pair_columns('time', (row) => row.ns, format_ns),
      effect_column('difference', read, largest_of(rows, read)),
    ],
  }));
}

function path_diff_card(page, rows) {
  const read = (row) => row.ns.second - row.ns.first;
  return card('Critical path, A → B', null, '', make_table({
    rows, limit: 12, memory: page.memory_of('path diff'),
    columns: [
      { title: 'part', value: (row) => row.name,
        swatch: (row) => (row.name === 'run' ? 'var(--busy)' : page.colours.path_part(row.name)) },
      ...pair_columns('time', (row) => row.ns, format_ns),
      effect_column('difference', read, largest_of(rows, read)),
    ],
  }));
}

const kFocusOfCores = ['path_ns', 'idle_ns'];  // mean nothing for streams

function focus_card(focus, is_streams) {
  const rows = [[is_streams ? 'time on all streams' : 'core time', 'run_ns'],
    ['in which one of them ran', 'union_ns'],
    ['of that, nothing else ran', 'exposed_ns'], ['of that, hidden', 'hidden_ns'],
    ['on the path', 'path_ns'], ['from first start to last end', 'extent_ns'],
    ['other kernels meanwhile', 'other_run_ns'], ['idle meanwhile', 'idle_ns']]
    .filter(([, key]) => !is_streams || !kFocusOfCores.includes(key))
    .map(([name, key]) => ({ name, times: { first: focus.first?.[key],
      second: focus.second?.[key] } }));
  const read = (row) => both(row.times).second - both(row.times).first;
  const sentence = Number.isFinite(focus.filled_ns) && !is_streams
    ? `Of the idle time a core had among them, ${format_ns(focus.filled_ns)} is filled by other ` +
      `kernels now and ${format_ns(focus.gone_ns)} is gone.` : null;
  return card(`Focus: ${focus.name}`, (focus.kernels ?? []).join(', '), 'wide', make_table({
    rows, limit: 12,
    columns: [{ title: 'time', value: (row) => row.name },
      ...pair_columns('A', (row) => row.times, format_ns),
      effect_column('difference', read, largest_of(rows, read))],
  }), sentence ? element('p', { class: 'quiet', text: sentence }) : null);
}

// {name, ns: {first, second}} of two objects by name.
function pair_rows(first, second) {
  return Object.keys({ ...first, ...second }).map((name) =>
    ({ name, ns: { first: first?.[name] ?? 0, second: second?.[name] ?? 0 } }));
}

function cause_rows(diff, steps) {
  if (diff.causes) {
    return diff.causes.map((row) =>
      ({ name: row.cause, ns: row.idle_ns, effect_ns: row.wall_effect_ns }));
  }
  const [first, second] = steps.map((step) => step.report.partition?.causes_ns);
  const [first_cores, second_cores] = steps.map((step) => Math.max(1, step.cores.length));
  return pair_rows(first, second).map((row) =>
    ({ ...row, effect_ns: row.ns.second / second_cores - row.ns.first / first_cores }));
}

function part_rows(diff, steps) {
  if (diff.path_parts) return diff.path_parts.map((row) => ({ name: row.part, ns: row.ns }));
  return pair_rows(...steps.map((step) => step.report.critical_path?.parts_ns));
}

export function diff_cards(page, diff, steps) {
  const is_there = (row) => row.ns.first !== 0 || row.ns.second !== 0;
  if (steps.every(is_of_streams)) {
    return [kernels_diff_card(page, diff.kernels ?? [], true), devices_diff_card(page, steps),
      ...(diff.focuses ?? []).map((focus) => focus_card(focus, true))];
  }
  return [kernels_diff_card(page, diff.kernels ?? [], false),
    element('div', { class: 'narrow column' },
      causes_diff_card(page, cause_rows(diff, steps).filter(is_there)),
      path_diff_card(page, part_rows(diff, steps).filter(is_there))),
    ...(diff.focuses ?? []).map((focus) => focus_card(focus, false))];
}
