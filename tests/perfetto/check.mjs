// SPDX-License-Identifier: Apache-2.0
//
// check.mjs FOLDER TRACE EXPECTED: loads TRACE into Perfetto's trace processor (from FOLDER) and
// compares what it found with EXPECTED, which make_traces wrote: counts, sums to the nanosecond,
// names, order of lanes, nesting, flows, counters, arguments. Nothing may have gone wrong while
// loading: the processor counts such things in its table `stats`.

import fs from 'node:fs';
import path from 'node:path';

import {TraceProcessor} from './trace_processor.mjs';

// Even where the processor calls them information, these mean that a part of the trace was not
// understood or not kept.
const FORBIDDEN_STATS = [
  /^slice_drop/, /^trace_sorter_negative/, /^json_.*_failure/, /^flow_/, /_parser_errors$/,
  /^track_hierarchy_missing/, /^clock_sync_(?!cache_miss)/, /^misplaced_end_event/, /^fuchsia_/,
  /^slice_negative_duration/,
];

// How the formats differ in what the processor makes of them.
const FORMATS = {
  '.pftrace': {
    prefix: 'debug.',
    depth: 'depth_sum',
    tracks: `select distinct track.name as name,
               extract_arg(track.source_arg_set_id, 'sibling_order_rank') as place
             from slice join track on slice.track_id = track.id order by place`,
    args: `select extract_arg(arg_set_id, 'debug.args') as text, count(*) as n from slice
           where extract_arg(arg_set_id, 'debug.args') is not null group by text`,
    ordered: true,
  },
  '.fxt': {
    prefix: '',
    depth: 'complete_depth_sum',
    tracks: `select distinct thread.name as name, tid as place from slice
             join thread_track on slice.track_id = thread_track.id join thread using (utid)
             order by place`,
    args: `select extract_arg(arg_set_id, 'args') as text, count(*) as n from slice
           where extract_arg(arg_set_id, 'args') is not null group by text`,
    ordered: true,
  },
  '.json': {
    prefix: 'args.',
    depth: 'complete_depth_sum',
    tracks: `select distinct thread.name as name, tid as place from slice
             join thread_track on slice.track_id = thread_track.id join thread using (utid)
             order by place`,
    // The members of the arguments stand for themselves there.
    args: `select '{"shape":[' || extract_arg(arg_set_id, 'args.shape[0]') || ',' ||
             extract_arg(arg_set_id, 'args.shape[1]') || ']}' as text, count(*) as n from slice
           where extract_arg(arg_set_id, 'args.shape[0]') is not null group by text`,
    ordered: false,  // sub-lanes have the last numbers
  },
};

const differences = [];

function compare(what, found, expected) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a === b) return;
  const shorten = (text) => (text.length > 300 ? `${text.slice(0, 300)} ...` : text);
  differences.push(`${what}: found ${shorten(a)}, expected ${shorten(b)}`);
}

const sortedObject = (entries) =>
  Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));

async function checkStats(processor) {
  const rows = await processor.query(
    "select name, value, severity from stats where value != 0 and value is not null");
  for (const {name, value, severity} of rows) {
    const isBad = severity === 'error' || severity === 'data_loss' ||
      FORBIDDEN_STATS.some((pattern) => pattern.test(name));
    if (isBad) differences.push(`stats: ${name} is ${value} (${severity})`);
  }
  if (differences.length === 0) return;
  for (const {name, value, severity} of rows) console.log(`  stats: ${name} ${value} ${severity}`);
}

async function checkSlices(processor, format, expected) {
  const [totals] = await processor.query(
    'select count(*) as n, sum(dur) as duration, sum(depth) as depth from slice');
  compare('slices', totals.n, expected.slices);
  compare('sum of durations in ns', totals.duration ?? 0, expected.duration_ns);
  if (expected[format.depth] !== undefined) {
    compare('sum of depths', totals.depth ?? 0, expected[format.depth]);
  }
  const names = await processor.query('select name, count(*) as n from slice group by name');
  compare('slices by name', sortedObject(names.map(({name, n}) => [name, n])),
    sortedObject(Object.entries(expected.names)));
  const categories = await processor.query(
    "select category, count(*) as n from slice where category is not null and category != '' " +
    "and category != 'task' group by category");
  compare('slices by category', sortedObject(categories.map(({category, n}) => [category, n])),
    sortedObject(Object.entries(expected.categories)));

  const argument = (key) => `extract_arg(arg_set_id, '${format.prefix}${key}')`;
  const [values] = await processor.query(
    `select count(${argument('value')}) as n, sum(${argument('value')}) as total from slice`);
  compare('slices with a value', values.n, expected.values);
  compare('sum of values', values.total ?? 0, expected.value_sum);
  const [tasks] = await processor.query(
    `select count(${argument('task')}) as n, count(distinct ${argument('task')}) as ids
     from slice`);
  compare('slices with a task', tasks.n, expected.tasks);
  compare('different tasks', tasks.ids, expected.task_ids);
  const args = await processor.query(format.args);
  compare('slices by arguments', sortedObject(args.map(({text, n}) => [text, n])),
    sortedObject(Object.entries(expected.args)));
}

async function checkTracks(processor, format, expected) {
  const found = (await processor.query(format.tracks)).map(({name}) => name);
  if (format.ordered) {
    compare('tracks in order', found, expected.tracks);
  } else {
    compare('tracks', [...found].sort(), [...expected.tracks].sort());
  }
  const devices = await processor.query(
    'select name from process where name is not null order by upid');
  compare('processes', devices.map(({name}) => name), expected.devices);
}

async function checkFlowsAndCounters(processor, expected) {
  const [flows] = await processor.query('select count(*) as n from flow');
  compare('flows', flows.n, expected.flows);
  const [backward] = await processor.query(
    `select count(*) as n from flow join slice a on flow.slice_out = a.id
     join slice b on flow.slice_in = b.id where a.ts > b.ts or a.id = b.id`);
  compare('flows that go back in time', backward.n, 0);
  const [counters] = await processor.query(
    'select count(*) as n, count(distinct track_id) as tracks, sum(value) as total from counter');
  compare('counter samples', counters.n, expected.counter_samples);
  compare('counter tracks', counters.tracks, expected.counter_tracks);
  compare('sum of counters', counters.total ?? 0, expected.counter_sum);
}

const [folder, trace, expectedFile] = process.argv.slice(2);
if (expectedFile === undefined) {
  console.error('usage: check.mjs FOLDER TRACE EXPECTED');
  process.exit(2);
}
const format = FORMATS[path.extname(trace)];
const expected = JSON.parse(fs.readFileSync(expectedFile, 'utf8'));
const processor = await TraceProcessor.start(folder);
await processor.load(trace);
await checkSlices(processor, format, expected);
await checkTracks(processor, format, expected);
await checkFlowsAndCounters(processor, expected);
await checkStats(processor);
processor.close();
for (const difference of differences) console.log(`${path.basename(trace)}: ${difference}`);
process.exitCode = differences.length === 0 ? 0 : 1;
