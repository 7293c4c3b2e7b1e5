// SPDX-License-Identifier: Apache-2.0
//
// node --test web/page_data_test.mjs: the pure part of the report page, on steps that a packer
// written from the same description (tests/web/made_page.mjs) has packed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { begins_of, busy_by_kernel, clamp_range, consumers_of, first_above } from './page_data.js';
import { format_count, format_ns, format_rate, format_share, format_tick } from './page_data.js';
import { item_at, largest_indexes, level_for, make_histogram, match_level } from './page_data.js';
import { match_tasks, neighbours_of, paint_items, paint_level, pan_range } from './page_data.js';
import { ColumnReader, RowPainter, kTimeNames, partition_of } from './page_data.js';
import { inflate_base64, run_ns_by_kernel, split_sentence } from './page_data.js';
import { task_times, tick_step, unpack_step, unzigzag, zoom_range } from './page_data.js';
import { kCauses, make_page, make_random, make_step, pack_step } from '../tests/web/made_page.mjs';

async function unpack(step, options) {
  const packed = pack_step(step, options);
  return unpack_step(packed, await inflate_base64(packed.columns));
}

// Two cores, three tasks, every kind of item once.
function small_step() {
  const task = (values) => ({ submit: 0, ready: 1, dispatch: 2, receive: 3, layer: 0, ...values });
  return {
    window_ns: 100, cores: [{ name: 'cube 0', kind: 'cube' }, { name: 'vector 0', kind: 'vector' }],
    lanes: [{ name: 'idle lane', kind: 'thread' }, { name: 'scheduler', kind: 'scheduler' }],
    kernels: ['norm', 'matmul'], span_names: ['poll', 'inner'],
    tasks: [
      task({ core: 0, start: 10, end: 30, kernel: 1, id: 7, finish: 29, producers: [] }),
      task({ core: 0, start: 30, end: 60, kernel: 0, id: 3, submit: 40, producers: [0, 2],
        layer: 1 }),
      task({ core: 1, start: 20, end: 90, kernel: 1, id: 9e15, ready: undefined, finish: 95,
        producers: [0] }),
    ],
    bubbles: [{ core: 0, begin: 0, end: 10, cause: 0 }, { core: 0, begin: 60, end: 100, cause: 9 },
      { core: 1, begin: 0, end: 20, cause: 2 }, { core: 1, begin: 90, end: 100, cause: 10 }],
    path: [{ part: 1, length: 20, task: 2 }, { part: 0, length: 70, task: 2 },
      { part: 6, length: 10, task: -1 }],
    spans: [{ lane: 1, begin: 5, end: 50, name: 0, depth: 0 },
      { lane: 1, begin: 5, end: 20, name: 1, depth: 1 },
      { lane: 1, begin: 60, end: 70, name: 0, depth: 0 }],
    report: {},
  };
}

test('varints of all sizes and signs come back', () => {
  const reader = new ColumnReader(Uint8Array.of(0, 127, 128, 1, 255, 255, 255, 255, 15));
  assert.deepEqual([reader.next(), reader.next(), reader.next(), reader.next()],
    [0, 127, 128, 2 ** 32 - 1]);
  assert.deepEqual([0, 1, 2, 3, 4].map(unzigzag), [0, -1, 1, -2, 2]);
  assert.throws(() => new ColumnReader(Uint8Array.of(128)).next(), /end too early/);
});

test('a step comes back as it was packed', async () => {
  const made = small_step();
  const { tasks, bubbles, path, spans } = await unpack(made);
  made.tasks.forEach((task, i) => {
    assert.equal(tasks.core[i], task.core);
    for (const name of ['kernel', 'id', 'layer', ...kTimeNames]) {
      assert.equal(tasks[name][i], task[name] ?? NaN, `${name} of ${i}`);
    }
    assert.deepEqual([...neighbours_of(tasks, i).producers], task.producers);
  });
  assert.deepEqual([...neighbours_of(tasks, 0).consumers], [1, 2]);
  assert.deepEqual([...bubbles.begin], [0, 60, 0, 90]);
  assert.deepEqual([...bubbles.end], [10, 100, 20, 100]);
  assert.deepEqual([...bubbles.cause], [0, 9, 2, 10]);
  assert.deepEqual([[...path.begin], [...path.task]], [[0, 20, 90], [2, 2, -1]]);
  assert.deepEqual([[...spans.begin], [...spans.end]], [[5, 5, 60], [50, 20, 70]]);
  assert.deepEqual([[...spans.lane], [...spans.depth]], [[1, 1, 1], [0, 1, 0]]);
});

test('bytes that are too few or too many are refused', async () => {
  const packed = pack_step(small_step());
  const bytes = await inflate_base64(packed.columns);
  assert.throws(() => unpack_step(packed, bytes.subarray(0, bytes.length - 1)));
  assert.throws(() => unpack_step(packed, Uint8Array.of(...bytes, 0)), /were read/);
});

test('random steps come back, and their consumers are their producers turned around', async () => {
  for (const seed of [1, 2, 3]) {
    const made = make_step({ task_count: 200, core_count: 5, seed });
    const { tasks, bubbles } = await unpack(made, { levels: [4, 16] });
    assert.deepEqual([...tasks.start], made.tasks.map((task) => task.start));
    assert.deepEqual([...bubbles.end], made.bubbles.map((bubble) => bubble.end));
    const consumers = consumers_of(tasks);
    assert.equal(consumers.items.length, tasks.producers.length);
    for (let task = 0; task < tasks.count; ++task) {
      for (const consumer of neighbours_of(tasks, task).consumers) {
        assert.ok(made.tasks[consumer].producers.includes(task));
      }
    }
  }
});

test('busy and idle time add up to cores times window', async () => {
  const step = await unpack(make_step({ task_count: 300, core_count: 7 }));
  const { busy_ns, causes_ns } = partition_of(step);
  for (let core = 0; core < 7; ++core) {
    const idle = causes_ns.subarray(core * kCauses.length, (core + 1) * kCauses.length);
    assert.equal(idle.reduce((sum, ns) => sum + ns, busy_ns[core]), step.window_ns);
  }
  const run_ns = run_ns_by_kernel(step).reduce((sum, ns) => sum + ns, 0);
  const columns = busy_by_kernel(step, 50).reduce((sum, share) => sum + share, 0);
  assert.ok(Math.abs(columns * step.window_ns / 50 - run_ns) < 1e-3 * run_ns);
});

test('zooming keeps the anchor in its place and stays inside the window', () => {
  const range = zoom_range({ begin: 0, end: 1000 }, 0.5, 200, 1000);
  assert.deepEqual(range, { begin: 100, end: 600 });
  assert.deepEqual(zoom_range(range, 100, 300, 1000), { begin: 0, end: 1000 });
  assert.deepEqual(zoom_range({ begin: 0, end: 100 }, 2, 0, 1000), { begin: 0, end: 200 });
  const least = zoom_range(range, 1e-9, 300, 1000);
  assert.equal(least.end - least.begin, 20);
  assert.deepEqual(clamp_range(0, 0, 5), { begin: 0, end: 5 });
});

test('random zooming and panning never leaves the window', () => {
  const random = make_random(5);
  let range = { begin: 0, end: 1e6 };
  for (let i = 0; i < 2000; ++i) {
    const anchor = range.begin + random() * (range.end - range.begin);
    range = random() < 0.5 ? zoom_range(range, 0.3 + 2 * random(), anchor, 1e6)
      : pan_range(range, (random() - 0.5) * 1e6, 1e6);
    assert.ok(range.begin >= 0 && range.end <= 1e6 + 1e-6 && range.end - range.begin > 19.9);
  }
});

test('ticks are round and far enough apart', () => {
  assert.equal(tick_step(1, 100), 100);
  assert.equal(tick_step(1.01, 100), 200);
  assert.equal(tick_step(3, 100), 500);
  assert.equal(tick_step(0.0001, 100), 1);
  assert.equal(format_tick(1500, 500, 2000), '1.5 µs');
  assert.equal(format_tick(2e6, 1e6, 9e6), '2 ms');
});

test('times, shares and counts are short and exact enough', () => {
  assert.deepEqual([0, 999, 1000, 45_123, 356e6, 2.5e9, -1500, NaN].map((ns) => format_ns(ns)),
    ['0 ns', '999 ns', '1.00 µs', '45.1 µs', '356 ms', '2.50 s', '-1.50 µs', '–']);
  assert.deepEqual([0, 0.00002, 0.0123, 0.262, 1, NaN].map(format_share),
    ['0 %', '0.002 %', '1.23 %', '26.2 %', '100 %', '–']);
  assert.equal(format_count(38705), '38,705');
  assert.deepEqual([0, 12, 1.5e12, 9.998e8, 9.9999e8].map((rate) => format_rate(rate, 'B/s')),
    ['–', '12.0 B/s', '1.50 TB/s', '1.00 GB/s', '1.00 GB/s']);
});

test('a sentence is split at its first mark outside of brackets', () => {
  assert.deepEqual(split_sentence('B is less (1 %: noise): idle; more'),
    ['B is less (1 %: noise):', ' idle; more']);
  assert.deepEqual(split_sentence('nothing (yet'), ['nothing (yet', '']);
});

test('items are found by time, and near misses within reach', () => {
  const items = { begin: [10, 30, 60], end: [20, 40, 61] };
  assert.equal(first_above(items.end, 0, 3, 20), 1);
  assert.equal(item_at(items, 0, 3, 15, 0), 0);
  assert.equal(item_at(items, 0, 3, 20, 0), 0);
  assert.equal(item_at(items, 0, 3, 25, 1), -1);
  assert.equal(item_at(items, 0, 3, 29, 2), 1);
  assert.equal(item_at(items, 0, 3, 58, 3), 2);
  assert.equal(item_at(items, 0, 0, 58, 3), -1);
});

function plain_colours(step, matches = null) {
  return {
    background: [0, 0, 0], matches,
    kernels: Float32Array.from(step.kernels.flatMap(() => [200, 0, 0])),
    dim_kernels: Float32Array.from(step.kernels.flatMap(() => [0, 200, 0])),
    causes: Float32Array.from([[0, 0, 0], ...step.causes.map(() => [0, 0, 200])].flat()),
  };
}

function row_of(step, core, range, width, { level = null, matches = null } = {}) {
  const painter = new RowPainter(width, plain_colours(step, matches));
  const matched = level && matches ? match_level(step, level, matches) : null;
  if (level) paint_level(painter, level, core, range, matched);
  else paint_items(painter, step, core, range, 0);
  const pixels = new Uint8ClampedArray(4 * width);
  painter.flush(pixels, 0);
  return pixels;
}

test('a row of pixels is the mean of what each pixel covers', async () => {
  const step = await unpack(small_step());
  const pixels = row_of(step, 0, { begin: 0, end: 100 }, 10);
  assert.deepEqual([...pixels.subarray(0, 8)], [0, 0, 200, 255, 200, 0, 0, 255]);
  const halves = row_of(step, 1, { begin: 10, end: 90 }, 2);
  assert.deepEqual([...halves], [150, 0, 50, 255, 200, 0, 0, 255]);
  const dim = row_of(step, 0, { begin: 0, end: 100 }, 10, { matches: Uint8Array.of(0, 1, 1) });
  assert.deepEqual([...dim.subarray(4, 16)], [0, 200, 0, 255, 0, 200, 0, 255, 200, 0, 0, 255]);
});

test('levels draw the same colours as the items, on average', async () => {
  const step = await unpack(make_step({ task_count: 600, core_count: 3 }), { levels: [16, 512] });
  const range = { begin: 0, end: step.window_ns };
  for (const level of step.levels) {
    for (let core = 0; core < 3; ++core) {
      const exact = row_of(step, core, range, 16);
      const drawn = row_of(step, core, range, 16, { level });
      exact.forEach((value, i) => assert.ok(Math.abs(value - drawn[i]) < 16));
    }
  }
});

test('what matches is seen in levels too, and nothing else is', async () => {
  const step = await unpack(make_step({ task_count: 600, core_count: 3 }), { levels: [512] });
  const range = { begin: 0, end: step.window_ns };
  const [level] = step.levels;
  const matches = new Uint8Array(step.tasks.count);
  matches[300] = 1;
  const pixel = Math.floor(step.tasks.start[300] / step.window_ns * 100);
  for (const options of [{ matches }, { matches, level }]) {
    const bright = (x) => row_of(step, step.tasks.core[300], range, 100, options)[4 * x];
    assert.ok(bright(pixel) + bright(pixel + 1) > 30);
    for (let x = 0; x < 100; ++x) assert.ok(Math.abs(x - pixel) <= 2 || bright(x) === 0);
  }
});

test('the coarsest level that is fine enough is drawn, and none for few items', () => {
  const step = { levels: [{ bucket_ns: 100 }, { bucket_ns: 10 }] };
  assert.equal(level_for(step, 150, 1000, 10), step.levels[0]);
  assert.equal(level_for(step, 50, 1000, 10), step.levels[1]);
  assert.equal(level_for(step, 5, 1000, 10), null);
  assert.equal(level_for(step, 150, 5, 10), null);
});

test('a query needs all its words, in kernel, core, id or layer', async () => {
  const step = await unpack(small_step());
  const found = (query) => [...match_tasks(step, query)].join('');
  assert.equal(match_tasks(step, '  '), null);
  assert.equal(found('MAT'), '101');
  assert.equal(found('mat cube'), '100');
  assert.equal(found('#3'), '010');
  assert.equal(found('7'), '100');
  assert.equal(found('layer:1'), '010');
  assert.equal(found('nothing'), '000');
});

test('histograms count everything once, with ratios when values are wide apart', () => {
  const narrow = make_histogram({ count: 5, value_of: (i) => 10 + i }, 4);
  assert.deepEqual([narrow.is_log, [...narrow.sums[0]]], [false, [1, 1, 1, 2]]);
  const values = [1, 10, 100, 1000];
  const wide = make_histogram({ count: 4, value_of: (i) => values[i], series_of: (i) => i % 2,
    series_count: 2, is_weighted: true }, 3);
  assert.ok(wide.is_log);
  assert.equal(wide.sums[0].reduce((sum, value) => sum + value, 0), 101);
  assert.equal(wide.sums[1].reduce((sum, value) => sum + value, 0), 1010);
  const same = make_histogram({ count: 3, value_of: () => 7 }, 40);
  assert.equal(same.sums[0].reduce((sum, value) => sum + value, 0), 3);
  assert.deepEqual(make_histogram({ count: 0, value_of: () => 0 }, 4).edges, []);
});

test('the largest come first, ties in order', () => {
  const values = [3, 9, 1, 9, 5];
  assert.deepEqual(largest_indexes(5, 3, (i) => values[i]), [1, 3, 4]);
  assert.deepEqual(largest_indexes(0, 3, (i) => values[i]), []);
  assert.deepEqual([...begins_of([2, 0, 3])], [0, 2, 2, 5]);
});

test('the seven times give differences to the one before that was recorded', async () => {
  const { tasks } = await unpack(small_step());
  const times = task_times(tasks, 2);
  assert.deepEqual(times.map((time) => time.since), [NaN, NaN, 2, 1, 17, 70, 5]);
  assert.equal(times[1].at, NaN);
});

test('a page holds texts of traces as data alone', () => {
  const step = small_step();
  step.kernels[0] = '</script><script>alert(1)</script>';
  const html = make_page({ first: pack_step(step) });
  assert.equal(html.split('</script>').length, 3);
  for (const mark of ['<!--TITLE-->', '<!--DATA-->', '/*SCRIPT*/', '/*STYLE*/']) {
    assert.ok(!html.includes(mark));
  }
});

test('no two modules declare the same name, since the page has one script', () => {
  const html = make_page({ first: {} });
  const names = [...html.matchAll(/^(?:async function|function|const|let|class) (\w+)/gm)]
    .map((match) => match[1]);
  assert.ok(names.length > 60);
  assert.deepEqual(names.filter((name, i) => names.indexOf(name) !== i), []);
  assert.ok(!/^(import|export) /m.test(html));
});
