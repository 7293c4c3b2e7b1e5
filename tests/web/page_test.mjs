// SPDX-License-Identifier: Apache-2.0
//
// page_test.mjs MODULES BROWSER [PAGE [DIFF_PAGE [STREAMS_PAGE]]]: the report page in a real
// browser, from disk. MODULES/node_modules holds playwright-core. Without pages some are made up.
//
// Nothing is compared with stored pictures, which would depend on fonts: what is drawn is compared
// with what the data says should be there.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { inflateSync } from 'node:zlib';
import { unpack_step } from '../../web/page_data.js';
import { as_streams, device_gaps, device_parts } from '../../web/stream_data.js';
import { make_page, make_step, make_stream_step, pack_step } from './made_page.mjs';

const [modules, browser_path, given_page, given_diff, given_streams] = process.argv.slice(2);
const { chromium } = createRequire(join(resolve(modules), 'package.json'))('playwright-core');
const folder = mkdtempSync(join(tmpdir(), 'gapless_page_'));
let browser;

function write_made(name, data) {
  const path = join(folder, name);
  writeFileSync(path, make_page(data));
  return path;
}

function empty_step() {
  return { window_ns: 0, cores: [{ name: 'only', kind: 'any' }], lanes: [], kernels: [],
    span_names: [], tasks: [], bubbles: [], path: [], spans: [], report: {} };
}

const made = make_step({ task_count: 900, core_count: 12 });
const page_path = given_page ?? write_made('page.html', { first: pack_step(made) });
const diff_path = given_diff ?? write_made('diff.html', {
  first: pack_step(made),
  second: pack_step(make_step({ task_count: 500, core_count: 12, seed: 2 })),
  diff: { verdict: 'the second is shorter: made up', kernels: [{ name: 'norm', second_name: 'norm',
    count: { first: 3, second: 2 }, run_ns: { first: 9000, second: 4000 },
    path_ns: { first: 100, second: 0 }, wall_effect_ns: -500 }] },
});
const made_streams_path = write_made('streams.html', { first: pack_step(make_stream_step()) });
const streams_path = given_streams ?? made_streams_path;

before(async () => {
  browser = await chromium.launch({ executablePath: browser_path, args: ['--no-sandbox'] });
});

after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

// Opens a page, runs `check` on it, and fails on any error or request but for the file itself.
async function with_page(path, check, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const tab = await context.newPage();
  const complaints = [];
  const url = pathToFileURL(resolve(path)).href;
  tab.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  tab.on('pageerror', (error) => complaints.push(error.stack));
  tab.on('request', (request) => {
    if (request.url() !== url && !/^(data|blob):/.test(request.url())) {
      complaints.push(`asked for ${request.url()}`);
    }
  });
  await tab.goto(url);
  await tab.waitForFunction(() => window.gapless_page !== undefined, null, { timeout: 60000 });
  await settle(tab);
  await check(tab);
  assert.deepEqual(complaints, []);
  await context.close();
}

// Until what was asked for is drawn.
function settle(tab) {
  return tab.evaluate(() => new Promise((done) => {
    requestAnimationFrame(() => requestAnimationFrame(() => done()));
  }));
}

function state_of(tab) {
  return tab.evaluate(() => {
    const { range, window_ns, selection, match_count } = window.gapless_page;
    return { range, window_ns, selection, match_count };
  });
}

async function plot_box(tab, index = 0) {
  const plot = tab.locator('canvas.plot').nth(index);
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  const { gutter, width } = await tab.evaluate((i) => {
    const timeline = window.gapless_page.page.timelines[i];
    return { gutter: timeline.gutter, width: timeline.plot_width };
  }, index);
  return { left: box.x + gutter, top: box.y, width, height: box.height };
}

// The longest task whose row is in view: its number and the middle of its block.
async function longest_task(tab) {
  const box = await plot_box(tab);
  const found = await tab.evaluate(() => {
    const [timeline] = window.gapless_page.page.timelines;
    const { tasks, kernels } = timeline.step;
    const is_seen = (i) => {
      const { top, height } = timeline.rect_of({ kind: 'task', index: i });
      return top > 30 && top + height < timeline.height;
    };
    let best = -1;
    for (let i = 0; i < tasks.count; ++i) {
      const length = tasks.end[i] - tasks.start[i];
      if (is_seen(i) && (best < 0 || length > tasks.end[best] - tasks.start[best])) best = i;
    }
    const { x0, x1, top, height } = timeline.rect_of({ kind: 'task', index: best });
    return { index: best, x: (x0 + x1) / 2 - timeline.gutter, y: top + height / 2,
      kernel: kernels[tasks.kernel[best]] };
  });
  return { ...found, x: box.left + found.x, y: box.top + found.y };
}

function close_to(value, wanted, tolerance, what) {
  assert.ok(Math.abs(value - wanted) <= tolerance, `${what}: ${value} is not ${wanted}`);
}

test('loads from disk with no error and no request', async () => {
  await with_page(page_path, async (tab) => {
    assert.notEqual(await tab.title(), '');
    assert.match(await tab.locator('#verdict').textContent(), /\w+ \w+/);
    assert.equal(await tab.locator('.tile').count(), 6);
    assert.ok(await tab.locator('#cards .card').count() >= 5);
    const headings = await tab.locator('#cards h2').allTextContents();
    assert.equal(headings[0], 'Where the core time went');
  });
});

test('a step with nothing in it loads too', async () => {
  const nothing = write_made('empty.html', { first: pack_step(empty_step(), { levels: [] }) });
  await with_page(nothing, async (tab) => {
    await tab.keyboard.press('w');
    await tab.mouse.move(600, 300);
    assert.equal((await state_of(tab)).selection, null);
  });
});

test('data that cannot be read is said to be so', async () => {
  const broken = pack_step(make_step({ task_count: 20, core_count: 2 }));
  broken.bubble_count += 1;
  broken.cores[0].bubble_count += 1;
  const context = await browser.newContext();
  const tab = await context.newPage();
  await tab.goto(pathToFileURL(write_made('broken.html', { first: broken })).href);
  await tab.waitForFunction(() => /cannot be shown/.test(document.body.textContent));
  await context.close();
});

// Mean colours of parts of the lanes, as the data says.
function expected_columns(count) {
  const { page } = window.gapless_page;
  const [timeline] = page.timelines;
  const { tasks, bubbles, kernels, causes, window_ns } = timeline.step;
  const rgb_of_text = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const cores = timeline.rows.filter((row) => row.kind === 'core')
    .filter((row) => timeline.row_top(row) + row.height < timeline.height);
  const sums = Array.from({ length: count }, () => [0, 0, 0, 0]);
  const add = (begin, end, rgb) => {
    const [x0, x1] = [begin / window_ns * count, end / window_ns * count];
    for (let x = Math.floor(x0); x < Math.min(x1, count); ++x) {
      const part = Math.min(x1, x + 1) - Math.max(x0, x);
      rgb.forEach((value, i) => { sums[x][i] += part * value; });
      sums[x][3] += part;
    }
  };
  for (const { index } of cores) {
    for (let i = tasks.core_begin[index]; i < tasks.core_begin[index + 1]; ++i) {
      add(tasks.start[i], tasks.end[i], rgb_of_text(page.colours.kernel(kernels[tasks.kernel[i]])));
    }
    for (let i = bubbles.core_begin[index]; i < bubbles.core_begin[index + 1]; ++i) {
      const colour = page.show_bubbles ? page.colours.cause(causes[bubbles.cause[i]])
        : page.colours.surface.plot;
      add(bubbles.begin[i], bubbles.end[i], rgb_of_text(colour));
    }
  }
  const rows = cores.map((row) => ({ top: timeline.row_top(row), height: row.height }));
  return { rows, columns: sums.map((sum) => sum.slice(0, 3).map((value) => value / sum[3])) };
}

// Mean colours of `count` columns of a picture, in the given rows of it.
async function picture_columns({ data, rows, count, scale }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const picture = await createImageBitmap(new Blob([bytes]));
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.drawImage(picture, 0, 0);
  const sums = Array.from({ length: count }, () => [0, 0, 0, 0]);
  for (const { top, height } of rows) {
    const first = Math.ceil(top * scale + 0.01);
    const lines = Math.max(1, Math.floor((height - 2) * scale));
    const { data: pixels } = context.getImageData(0, first, picture.width, lines);
    for (let i = 0; i < pixels.length; i += 4) {
      const x = (i / 4) % picture.width;
      const sum = sums[Math.min(count - 1, Math.floor(x / picture.width * count))];
      for (let part = 0; part < 3; ++part) sum[part] += pixels[i + part];
      sum[3] += 1;
    }
  }
  return sums.map((sum) => sum.slice(0, 3).map((value) => value / sum[3]));
}

async function compare_picture(tab, tolerance) {
  const kColumns = 20;
  const { rows, columns } = await tab.evaluate(expected_columns, kColumns);
  const box = await plot_box(tab);
  const clip = { x: box.left, y: box.top, width: box.width, height: box.height };
  const picture = await tab.screenshot({ clip });
  const drawn = await tab.evaluate(picture_columns,
    { data: picture.toString('base64'), rows, count: kColumns, scale: 1 });
  const differences = drawn.flatMap((rgb, x) => rgb.map((value, i) =>
    Math.abs(value - columns[x][i])));
  const mean = differences.reduce((sum, value) => sum + value, 0) / differences.length;
  assert.ok(mean < tolerance, `the lanes are ${mean.toFixed(1)} of 255 off on average`);
  return drawn;
}

// Labels and the gaps between blocks are not in the expected colours: 11 of 255 are left for them.
test('the lanes show busy and idle time in their colours', async () => {
  await with_page(page_path, async (tab) => {
    await tab.locator('[data-toggle=show_path]').click();
    await tab.mouse.move(5, 5);
    await settle(tab);
    const with_causes = await compare_picture(tab, 11);
    await tab.locator('[data-toggle=show_bubbles]').click();
    await tab.mouse.move(5, 5);
    await settle(tab);
    await compare_picture(tab, 11);
    const different = new Set(with_causes.map((rgb) => rgb.map((part) => part.toFixed(2)).join()));
    assert.ok(different.size > 1, 'the picture is not one colour');
  });
});

test('the wheel zooms around the pointer', async () => {
  await with_page(page_path, async (tab) => {
    const box = await plot_box(tab);
    const { window_ns } = await state_of(tab);
    await tab.mouse.move(box.left + box.width * 0.25, box.top + 60);
    await tab.mouse.wheel(0, -300);
    await tab.mouse.wheel(0, -300);
    await settle(tab);
    const { range } = await state_of(tab);
    const length = range.end - range.begin;
    assert.ok(length < window_ns * 0.6, 'the range shrinks');
    close_to(range.begin + length * 0.25, window_ns * 0.25, length * 0.01, 'time at the pointer');
    await tab.mouse.wheel(0, 5000);
    await tab.mouse.wheel(0, 5000);
    await settle(tab);
    const whole = (await state_of(tab)).range;
    close_to(whole.end - whole.begin, window_ns, 1, 'all of it again');
  });
});

test('dragging pans, on the lanes and on the overview', async () => {
  await with_page(page_path, async (tab) => {
    const box = await plot_box(tab);
    const { window_ns } = await state_of(tab);
    await tab.keyboard.press('w');
    await tab.keyboard.press('w');
    const { range: first } = await state_of(tab);
    const length = first.end - first.begin;
    await tab.mouse.move(box.left + 300, box.top + 60);
    await tab.mouse.down();
    await tab.mouse.move(box.left + 200, box.top + 60, { steps: 4 });
    await tab.mouse.up();
    const { range: second, selection } = await state_of(tab);
    close_to(second.begin - first.begin, 100 / box.width * length, length * 0.01, 'moved by');
    assert.equal(selection, null, 'a drag selects nothing');
    const overview = await tab.locator('canvas.overview').first().boundingBox();
    const share = (second.begin + length / 2) / window_ns;
    await tab.mouse.move(box.left + share * box.width, overview.y + 20);
    await tab.mouse.down();
    await tab.mouse.move(box.left, overview.y + 20, { steps: 4 });
    await tab.mouse.up();
    close_to((await state_of(tab)).range.begin, 0, length * 0.02, 'at the begin');
  });
});

test('keys move, zoom, fit and explain themselves', async () => {
  await with_page(page_path, async (tab) => {
    const begin_after = async (key) => {
      await tab.keyboard.press(key);
      return (await state_of(tab)).range;
    };
    const { window_ns } = await state_of(tab);
    const zoomed = await begin_after('w');
    assert.ok(zoomed.end - zoomed.begin < window_ns);
    const right = await begin_after('d');
    assert.ok(right.begin > zoomed.begin);
    assert.ok((await begin_after('ArrowLeft')).begin < right.begin);
    assert.ok((await begin_after('+')).begin > zoomed.begin);
    assert.deepEqual(await begin_after('0'), { begin: 0, end: window_ns });
    await tab.keyboard.press('?');
    assert.ok(await tab.locator('dialog').isVisible());
    await tab.keyboard.press('Escape');
    assert.ok(!await tab.locator('dialog').isVisible());
    await tab.keyboard.press('/');
    assert.equal(await tab.evaluate(() => document.activeElement.id), 'search');
  });
});

test('hovering tells, and a click selects a task with its times and neighbours', async () => {
  await with_page(page_path, async (tab) => {
    const task = await longest_task(tab);
    await tab.mouse.move(task.x, task.y);
    await settle(tab);
    assert.match(await tab.locator('#tooltip').textContent(), /submit.*dispatch.*finish/s);
    assert.ok((await tab.locator('#tooltip h3').textContent()).includes(task.kernel));
    await tab.mouse.click(task.x, task.y);
    await settle(tab);
    const { selection } = await state_of(tab);
    assert.deepEqual(selection, { timeline: 0, kind: 'task', index: task.index });
    assert.equal(await tab.locator('#panel .times tr').count(), 7);
    assert.ok((await tab.locator('#panel h3').first().textContent()).includes(task.kernel));
    const neighbour = tab.locator('#panel .neighbours button').first();
    if (await neighbour.count() > 0) {
      await neighbour.click();
      const other = (await state_of(tab)).selection;
      assert.ok(other.kind === 'task' && other.index !== task.index);
    }
    await tab.keyboard.press('f');
    const { range, window_ns } = await state_of(tab);
    assert.ok(range.end - range.begin < window_ns / 2, 'F zooms to it');
    await tab.keyboard.press('Escape');
    assert.equal((await state_of(tab)).selection, null);
    assert.ok(await tab.locator('#panel').isHidden());
  });
});

test('searching finds, counts and goes through the matches', async () => {
  await with_page(page_path, async (tab) => {
    const { name, count } = await tab.evaluate(() => {
      const { step } = window.gapless_page.page.timelines[0];
      const wanted = step.kernels[step.tasks.kernel[0]];
      const kernels = step.kernels.map((kernel) => kernel.includes(wanted));
      return { name: wanted, count: step.tasks.kernel.reduce((sum, k) => sum + kernels[k], 0) };
    });
    await tab.locator('#search').fill(name);
    await settle(tab);
    assert.equal((await state_of(tab)).match_count, count);
    assert.match(await tab.locator('#matches').textContent(), /^[\d,]+ tasks?$/);
    await tab.keyboard.press('Enter');
    const first = (await state_of(tab)).selection;
    await tab.locator('#search').blur();
    await tab.keyboard.press('n');
    const second = (await state_of(tab)).selection;
    assert.equal(first.kind, 'task');
    if (count > 1) assert.notEqual(second.index, first.index);
    await tab.keyboard.press('p');
    assert.deepEqual((await state_of(tab)).selection, first);
    await tab.keyboard.press('Escape');
    assert.equal((await state_of(tab)).match_count, 0);
  });
});

test('tables sort by a click on a head, and rows choose in the timeline', async () => {
  await with_page(page_path, async (tab) => {
    const kernels = tab.locator('.card.kernels');
    const names = () => kernels.locator('tbody td:first-child').allTextContents();
    const more = kernels.locator('.more');
    if (await more.isVisible()) await more.click();
    const before_sorting = await names();
    const by_name = kernels.locator('th button').first();
    await by_name.click();
    const sorted = await names();
    assert.deepEqual(sorted, sorted.slice().sort((a, b) => a.localeCompare(b)));
    await by_name.click();
    assert.deepEqual(await names(), sorted.slice().reverse());
    assert.deepEqual(before_sorting.slice().sort(), sorted.slice().sort());
    await kernels.locator('tbody tr').first().click();
    await settle(tab);
    assert.ok((await state_of(tab)).match_count > 0, 'its tasks are shown alone');
    assert.deepEqual(await names(), sorted.slice().reverse(), 'the order stays');
    const title = tab.locator('h2', { hasText: 'Largest bubbles' });
    const bubbles = tab.locator('.card', { has: title });
    if (await bubbles.locator('tbody tr').count() === 0) return;
    await bubbles.locator('tbody tr').first().click();
    await settle(tab);
    assert.equal((await state_of(tab)).selection.kind, 'bubble');
  });
});

test('a cause of the partition is highlighted by a click', async () => {
  await with_page(page_path, async (tab) => {
    const part = tab.locator('.partition .parts button').first();
    await part.click();
    assert.equal(await tab.locator('.partition .parts button[aria-pressed=true]').count(), 1);
    const chosen = await tab.evaluate(() => window.gapless_page.page.chosen_cause);
    assert.equal(await part.locator('.label').textContent(), chosen);
  });
});

test('the theme follows the system and can be turned over', async () => {
  const brightness = (tab) => tab.evaluate(() => {
    const copy = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    copy.drawImage(document.querySelector('canvas.plot'), -2, -2);
    const [red, green, blue] = copy.getImageData(0, 0, 1, 1).data;
    return (red + green + blue) / 3;
  });
  for (const colorScheme of ['light', 'dark']) {
    await with_page(page_path, async (tab) => {
      const is_dark = async () => (await brightness(tab)) < 100;
      assert.equal(await is_dark(), colorScheme === 'dark');
      await tab.locator('#theme_button').click();
      await settle(tab);
      assert.equal(await is_dark(), colorScheme !== 'dark');
    }, { colorScheme });
  }
});

test('nothing is wider than the window', async () => {
  for (const path of [page_path, streams_path]) {
    for (const width of [420, 800, 1280, 1920]) {
      await with_page(path, async (tab) => {
        const wide = await tab.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${wide} of ${width} pixels`);
      }, { viewport: { width, height: 800 } });
    }
  }
});

test('two steps are drawn above each other with the same time', async () => {
  await with_page(diff_path, async (tab) => {
    assert.equal(await tab.locator('canvas.plot').count(), 2);
    assert.ok(await tab.locator('#diff_cards .card').count() >= 3);
    const box = await plot_box(tab, 1);
    await tab.mouse.move(box.left + box.width * 0.1, box.top + 60);
    await tab.mouse.wheel(0, -400);
    await settle(tab);
    const places = () => tab.evaluate(() => {
      const { page } = window.gapless_page;
      const middle = (page.range.begin + page.range.end) / 2;
      return page.timelines.map((timeline) => timeline.x_of(middle * timeline.time_scale()) -
        timeline.gutter - timeline.plot_width / 2);
    });
    (await places()).forEach((place) => close_to(place, 0, 0.01, 'middle'));
    await tab.locator('[data-toggle=is_scaled]').click();
    await tab.keyboard.press('0');
    await settle(tab);
    const ends = await tab.evaluate(() => window.gapless_page.page.timelines.map((timeline) =>
      timeline.x_of(timeline.step.window_ns) - timeline.gutter - timeline.plot_width));
    ends.forEach((place) => close_to(place, 0, 0.01, 'both end at the right'));
    await tab.locator('#sides button').nth(1).click();
    assert.equal(await tab.evaluate(() => window.gapless_page.page.side), 1);
  });
});

// ---- captures of streams ----

function unpacked(data) {
  return as_streams(unpack_step(data, inflateSync(Buffer.from(data.columns, 'base64'))));
}

// The step of a page on disk.
function step_of(path) {
  const [, text] = readFileSync(path, 'utf8').match(/id="first">(.*?)<\/script>/s);
  return unpacked(JSON.parse(text));
}

function sum_of(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

test('gaps are when no stream of a device runs anything', () => {
  const gaps = device_gaps(step_of(made_streams_path));
  const figures = gaps.map((gap) => [gap.begin, gap.end, gap.before, gap.after, gap.launch]);
  assert.deepEqual(figures, [[0, 100e3, -1, 0, NaN], [700e3, 800e3, 2, 1, 750e3],
    [1200e3, 1500e3, 1, 3, 1000e3], [1600e3, 2000e3, 3, -1, NaN]]);
  assert.ok(gaps.every((gap) => gap.device === 'NPU 0'));
});

test('gaps of several devices are those of each, or of all where nobody can tell', () => {
  const step = make_stream_step();
  const device = (name, idle_ns) => ({ ...step.report.devices[0], device: name, idle_ns });
  step.report.devices = [device('NPU 0', 1100e3), device('NPU 1', 1700e3)];
  step.report.partition = { cores: [{ name: 'NPU 0 Stream 7' }, { name: 'NPU 1 Stream 7' }] };
  const counts = (gaps, name) => gaps.filter((gap) => gap.device === name).length;
  const apart = device_gaps(unpacked(pack_step(step)));
  assert.deepEqual([counts(apart, 'NPU 0'), counts(apart, 'NPU 1')], [3, 3]);
  step.report.devices[1].idle_ns += 1;
  const together = device_gaps(unpacked(pack_step(step)));
  assert.deepEqual([together.length, counts(together, undefined)], [4, 4]);
});

test('the gaps and parts of a page of streams add up to what its report says', () => {
  const step = step_of(streams_path);
  const gaps = device_gaps(step);
  for (const device of step.report.devices) {
    const own = gaps.filter((gap) => gap.device === device.device);
    assert.equal(own.length, device.idle_count);
    assert.equal(sum_of(own.map((gap) => gap.end - gap.begin)), device.idle_ns);
    assert.equal(sum_of(device_parts(device).map((part) => part.ns)), step.window_ns);
  }
  const idle_ns = sum_of(step.bubbles.end.map((end, i) => end - step.bubbles.begin[i]));
  const busy_ns = sum_of(step.tasks.end.map((end, i) => end - step.tasks.start[i]));
  assert.equal(busy_ns + idle_ns, step.window_ns * step.cores.length);
});

test('a page of streams has neither causes nor a path nor cores', async () => {
  await with_page(streams_path, async (tab) => {
    const headings = await tab.locator('#cards h2').allTextContents();
    assert.match(headings[0], /^Where the time of (NPU|GPU|device) ?\d* went$/);
    assert.deepEqual(headings.slice(1, 4), ['Longest gaps', 'Kernels', 'Spread']);
    const text = await tab.locator('body').innerText();
    const words = /\bcores?\b|critical path|replay|what would|on the path|layer|dependency/i;
    assert.doesNotMatch(text, words);
    assert.equal(await tab.locator('#toggles button').count(), 0);
    assert.equal(await tab.locator('#legend .causes').count(), 0);
    const kinds = await tab.evaluate(() => window.gapless_page.page.timelines[0].rows
      .map((row) => row.kind));
    assert.ok(!kinds.includes('path') && kinds.includes('core'));
    const heads = await tab.locator('.card.kernels th').allTextContents();
    assert.deepEqual(heads, ['kernel', 'runs', 'time', 'of the step', 'median', 'longest']);
    await compare_picture(tab, 11);
  });
});

test('tiles and parts say what the device did', async () => {
  await with_page(made_streams_path, async (tab) => {
    const tiles = await tab.locator('.tile').evaluateAll((all) => all.map((tile) =>
      [...tile.querySelectorAll('span, strong')].map((one) => one.textContent)));
    assert.deepEqual(tiles.map(([name, value]) => [name, value]).slice(1), [['computing', '45.0 %'],
      ['communicating alone', '5.00 %'], ['copying alone', '5.00 %'], ['idle', '45.0 %'],
      ['kernels', '4'], ['streams', '2']]);
    assert.equal(tiles[4][2], '2.50 % not launched yet; 4 gaps');
    const parts = await tab.locator('.devices .part').evaluateAll((all) => all.map((part) =>
      `${part.querySelector('.label').textContent}: ${part.querySelector('.time').textContent}`));
    assert.deepEqual(parts, ['computing: 800 µs', 'computing and communicating: 100 µs',
      'communicating alone: 100 µs', 'copying alone: 100 µs',
      'idle: next kernel not launched: 50.0 µs', 'idle: next kernel launched: 350 µs',
      'idle: launch not known: 500 µs']);
    const streams = await tab.locator('.devices .core').allTextContents();
    assert.deepEqual(streams, ['Stream 745.0 %', 'Stream 915.0 %']);
    assert.deepEqual(await tab.locator('#notes li').allTextContents(),
      ['<b>made</b> up: nothing was measured'], 'what streams never have is no note');
    assert.match(await tab.locator('.card.kernels tbody tr').first().textContent(),
      /^matmul2900 µs45\.0 %/);
  });
});

test('a gap shows itself and selects the kernel before it', async () => {
  await with_page(made_streams_path, async (tab) => {
    const rows = tab.locator('.card.gaps tbody tr');
    assert.deepEqual(await rows.evaluateAll((all) => all.map((row) =>
      [...row.cells].map((cell) => cell.textContent).join(' | '))),
    ['400 µs | 1.600 ms | copy #4 | the end | –',
      '300 µs | 1.200 ms | matmul #3 | copy #4 | before it',
      '100 µs | 0 ns | the begin | matmul #1 | –',
      '100 µs | 700.0 µs | all_reduce #2 | matmul #3 | 50.0 µs into it']);
    await rows.nth(3).click();
    const { selection, range } = await state_of(tab);
    assert.deepEqual(selection, { timeline: 0, kind: 'task', index: 2 });
    assert.ok(range.begin < 700e3 && range.end > 800e3 && range.end - range.begin < 600e3);
    assert.match(await tab.locator('#panel').textContent(), /all_reduce.*Stream 9.*start.*end/s);
    assert.doesNotMatch(await tab.locator('#panel').textContent(), /layer|dispatch|edges/);
    await rows.nth(2).click();
    assert.equal((await state_of(tab)).selection.index, 0, 'there is none before the first');
  });
});

test('two captures of streams are compared by the time of the device', async () => {
  const kernel = { name: 'copy', second_name: 'copy', count: { first: 1, second: 1 },
    run_ns: { first: 100e3, second: 300e3 }, path_ns: { first: 0, second: 0 }, wall_effect_ns: 1 };
  const path = write_made('streams_diff.html', { first: pack_step(make_stream_step()),
    second: pack_step(make_stream_step({ copy_ns: 300 })),
    diff: { verdict: 'B takes 1 ns more (made up): most of it is dependency bubbles (+9 us)',
      kernels: [kernel], notes: ['A and B: no edges: the critical path is cut', 'A: short'] } });
  await with_page(path, async (tab) => {
    const names = await tab.locator('.tile_name').allTextContents();
    assert.deepEqual(names.slice(3), ['computing', 'communicating alone', 'idle']);
    assert.equal(await tab.locator('.tile strong').nth(5).textContent(), '45.0 % → 35.0 %');
    assert.deepEqual(await tab.locator('#diff_cards h2').allTextContents(),
      ['Kernels, A → B', 'Time of NPU 0, A → B']);
    const rows = await tab.locator('#diff_cards tbody tr').allTextContents();
    assert.ok(rows.includes('copy11100 µs300 µs+200 µs'), rows.join('; '));
    assert.ok(rows.includes('copying alone100 µs300 µs+200 µs'), rows.join('; '));
    assert.doesNotMatch(await tab.locator('#verdict').textContent(), /bubbles/);
    const notes = await tab.locator('#notes li').allTextContents();
    assert.ok(notes.includes('A: short') && !notes.some((note) => note.includes('edges')));
    assert.deepEqual(await tab.locator('#toggles button').allTextContents(), ['Same length']);
    await tab.locator('#sides button').nth(1).click();
    assert.match(await tab.locator('.devices .part', { hasText: 'copying alone' }).textContent(),
      /300 µs/);
  });
});
