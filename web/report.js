// SPDX-License-Identifier: Apache-2.0
//
// The report page: unpacks the data, puts the page together, and keeps what its parts share: the
// visible range, the selection, the filters, the theme. One step, or two above each other.
import { Colours } from './colours.js';
import { button, element, swatch } from './charts.js';
import { make_cards } from './cards.js';
import { describe_item, kCauseWords } from './details.js';
import { diff_cards, diff_notes, diff_tiles, diff_verdict } from './diff_cards.js';
import { make_stream_cards, stream_tiles } from './stream_cards.js';
import { as_streams, is_of_streams } from './stream_data.js';
import { clamp_range, format_count, format_ns, format_share, inflate_base64 } from './page_data.js';
import { match_tasks, once, pan_range, split_sentence, unpack_step } from './page_data.js';
import { zoom_range } from './page_data.js';
import { Timeline } from './timeline.js';

const kKeys = [
  ['drag', 'move in time'], ['wheel', 'zoom around the pointer'], ['shift + wheel', 'scroll lanes'],
  ['A D ← →', 'move in time'], ['W S + −', 'zoom'], ['0 Home', 'the whole step'],
  ['F', 'zoom to the selection'], ['[ ]', 'lower and higher lanes'], ['/', 'search'],
  ['N P', 'next and previous match'], ['Esc', 'clear'], ['?', 'these keys'],
];
const kMaxChips = 14;

function by_id(id) {
  return document.getElementById(id);
}

async function read_step(id) {
  const data = JSON.parse(by_id(id).textContent);
  return as_streams(unpack_step(data, await inflate_base64(data.columns)));
}

function stored_theme() {
  try {
    return localStorage.getItem('gapless_theme');
  } catch {
    return null;  // some browsers keep nothing for files
  }
}

class ReportPage {
  constructor(steps, diff) {
    Object.assign(this, { steps, diff, side: 0, chosen_kernel: null, chosen_cause: null });
    Object.assign(this, { show_bubbles: true, show_path: true, show_edges: true });
    Object.assign(this, { is_scaled: false, row_scale: 1, query: '', match_count: 0 });
    this.memories = new Map();
    this.is_of_streams = steps.every(is_of_streams);
    this.window_ns = Math.max(1, ...steps.map((step) => step.window_ns));
    this.range = { begin: 0, end: this.window_ns };
    this.system_theme = matchMedia('(prefers-color-scheme: dark)');
    this.theme = stored_theme() ?? (this.system_theme.matches ? 'dark' : 'light');
    this.colours = new Colours(this.theme, steps);
    document.documentElement.dataset.theme = this.theme;
    this.timelines = steps.map((step, i) => this.make_timeline(step, i));
  }

  make_timeline(step, index) {
    const root = element('div', { class: 'timeline' });
    if (this.steps.length > 1) {
      root.append(element('h3', { class: 'side_title' },
        element('b', { text: index === 0 ? 'A' : 'B' }),
        element('span', { text: step.title }),
        element('small', { text: format_ns(step.window_ns) })));
    }
    by_id('timelines').append(root);
    return new Timeline(root, step, this);
  }

  start() {
    by_id('source').textContent = this.steps.map((step) => step.title).join('   →   ');
    this.fill_summary();
    this.fill_tools();
    by_id('stage').hidden = false;
    this.refresh();
    this.resize();
    this.fit();
    new ResizeObserver(() => this.resize()).observe(by_id('timelines'));
    window.addEventListener('resize', () => this.resize());
    document.addEventListener('keydown', (event) => this.on_key(event));
    this.system_theme.addEventListener('change', (event) => {
      if (stored_theme() === null) this.set_theme(event.matches ? 'dark' : 'light');
    });
    by_id('theme_button').addEventListener('click', () => this.toggle_theme());
    by_id('keys_button').addEventListener('click', () => this.show_keys());
    by_id('page').setAttribute('aria-busy', 'false');
  }

  resize() {
    const room = Math.max(280, window.innerHeight * 0.6);
    const key = `${by_id('timelines').clientWidth} ${room} ${window.devicePixelRatio}`;
    if (key === this.size_key) return;
    this.size_key = key;
    for (const timeline of this.timelines) timeline.resize(room / this.timelines.length ** 0.7);
  }

  // ---- the top ----

  fill_summary() {
    const { report } = this.steps[0];
    const text = this.diff ? diff_verdict(this.diff, this.steps) : report.verdict ?? '';
    const [head, rest] = split_sentence(text);
    by_id('verdict').replaceChildren(element('b', { text: head }), element('span', { text: rest }));
    const tiles = this.diff ? diff_tiles(this.diff, this.steps) : this.tiles_of(this.steps[0]);
    by_id('tiles').style.setProperty('--tiles', tiles.length);
    by_id('tiles').replaceChildren(...tiles.map(([name, value, note, share]) =>
      element('div', { class: 'tile' }, element('span', { class: 'tile_name', text: name }),
        element('strong', { text: value, class: value.length > 11 ? 'long' : null }),
        element('span', { class: 'tile_note', text: note }),
        Number.isFinite(share) ? element('i', { class: 'meter',
          style: { '--share': Math.max(0, Math.min(1, share)) } }) : null)));
    const notes = this.steps.flatMap((step) => this.notes_of(step));
    notes.push(...diff_notes(this.diff, this.steps));
    by_id('notes').hidden = notes.length === 0;
    by_id('notes').replaceChildren(...Array.from(new Set(notes), (note) =>
      element('li', { text: note })));
  }

  tiles_of(step) {
    if (is_of_streams(step)) return stream_tiles(step);
    const { report } = step;
    const lengths = report.step_lengths_ns ?? [];
    const spread = `${format_ns(lengths[0])} to ${format_ns(lengths[lengths.length - 1])}`;
    const several = `step ${report.step}; ${lengths.length} steps, ${spread}`;
    const cores = step.cores.length;
    const busy = report.average_busy_cores ?? NaN;
    const { task_overhead: overhead, longest_chain: chain, what_if: changes } = report;
    const of_task = (ns) => format_ns(ns / Math.max(1, overhead.tasks));
    const has_overhead = overhead?.tasks > 0;
    const chain_share = chain ? chain.ns / step.window_ns : NaN;
    return [
      ['step', format_ns(step.window_ns, 4), lengths.length > 1 ? several : 'one step'],
      ['busy cores', Number.isFinite(busy) ? `${busy.toFixed(1)} of ${cores}` : `– of ${cores}`,
        `${format_count(step.task_count)} tasks`],
      ['busy share', format_share(busy / cores), 'of the core time', busy / cores],
      ['overhead', has_overhead ? format_share(overhead.share) : '–', has_overhead
        ? `of dispatch to finish: ${of_task(overhead.dispatch_to_finish_ns)}, of which ` +
          `${of_task(overhead.run_ns)} run` : 'dispatch or finish not recorded',
        has_overhead ? overhead.share : NaN],
      ['longest chain', chain ? format_ns(chain.ns) : '–', chain
        ? `${format_count(chain.tasks)} tasks, ${format_share(chain_share)} of the step`
        : 'no edges', chain_share],
      ['replay error', changes ? format_share(changes.replay_error) : '–',
        changes ? 'of the unchanged step' : 'no replay'],
    ];
  }

  notes_of(step) {
    const notes = [...(step.report.notes ?? [])];
    // Streams have neither edges nor seven times, and nothing here needs them: of the findings
    // those that matter are among the notes.
    const findings = is_of_streams(step) ? [] : step.report.quality?.findings ?? [];
    for (const finding of findings) {
      if (finding.level !== 'fine' && !notes.includes(finding.text)) notes.push(finding.text);
    }
    if (step.edges_left_out > 0) {
      notes.push(`${format_count(step.edges_left_out)} edges are left out of this page`);
    }
    if (step.spans_left_out > 0) {
      notes.push(`${format_count(step.spans_left_out)} spans are left out of this page`);
    }
    return notes;
  }

  // ---- tools above the timeline ----

  fill_tools() {
    const toggles = this.is_of_streams ? [] : [['show_bubbles', 'Idle by cause'],
      ['show_path', 'Critical path'], ['show_edges', 'Edges']];
    if (this.steps.length > 1) toggles.push(['is_scaled', 'Same length']);
    by_id('toggles').hidden = toggles.length === 0;
    by_id('toggles').replaceChildren(...toggles.map(([name, text]) => {
      const made = button(text, text, () => {
        this[name] = !this[name];
        made.setAttribute('aria-pressed', String(this[name]));
        this.timelines.forEach((timeline) => timeline.resize());
      }, { 'aria-pressed': String(this[name]), 'data-toggle': name });
      return made;
    }));
    by_id('zooms').replaceChildren(
      button('−', 'Zoom out (S)', () => this.zoom(1.6)),
      button('+', 'Zoom in (W)', () => this.zoom(1 / 1.6)),
      button('Fit', 'The whole step (0)', () => this.fit()),
      button('↕', 'Higher lanes ([ and ])', () =>
        this.scale_rows(this.row_scale > 3 ? 1 / this.row_scale : 1.5)));
    const search = by_id('search');
    if (this.is_of_streams) search.placeholder = 'Search kernel, #id, stream';
    search.addEventListener('input', () => {
      this.query = search.value;
      this.filter();
    });
    search.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.step_match(event.shiftKey ? -1 : 1);
      if (event.key === 'Escape') this.clear();
    });
  }

  fill_legend() {
    const kernels = this.colours.ranked_kernels;
    const with_causes = this.steps.filter((step) => !is_of_streams(step));
    const used = new Set(with_causes.flatMap((step) =>
      once(step, 'causes', () => Array.from(new Set(step.bubbles.cause))
        .map((cause) => step.causes[cause]))));
    const chip = (name, colour, is_on, title, on_click) => {
      const made = button('', title, on_click, { class: 'chip', 'aria-pressed': String(is_on) });
      made.append(swatch(colour), element('span', { text: name }));
      return made;
    };
    const more = kernels.length - kMaxChips;
    by_id('legend').replaceChildren(
      element('div', { class: 'chips' }, ...kernels.slice(0, kMaxChips).map((name) =>
        chip(name, this.colours.kernel(name), this.chosen_kernel === name, 'Show this kernel alone',
          () => this.choose_kernel(name))),
      more > 0 ? element('span', { class: 'quiet', text: `and ${more} more kernels` }) : null),
      ...with_causes.slice(0, 1).map((step) => element('div', { class: 'chips causes' },
        element('span', { class: 'quiet', text: 'idle' }),
        ...step.causes.filter((name) => used.has(name)).map((name) =>
          chip(name, this.colours.cause(name), this.chosen_cause === name, kCauseWords[name],
            () => this.choose_cause(name))))));
  }

  // Everything that depends on what is chosen, or on the theme.
  refresh() {
    this.fill_legend();
    if (this.diff) {
      by_id('diff_cards').replaceChildren(...diff_cards(this, this.diff, this.steps));
      this.fill_sides();
    }
    const shown = this.timelines[this.side];
    by_id('cards').replaceChildren(...(is_of_streams(shown.step) ? make_stream_cards(this, shown)
      : make_cards(this, shown)));
    this.filter();
  }

  fill_sides() {
    by_id('sides').hidden = false;
    by_id('sides').replaceChildren(element('h2', { text: 'Each by itself' }),
      element('span', { class: 'group' }, ...this.steps.map((step, i) => button(
        `${i === 0 ? 'A' : 'B'}: ${step.title}`, 'Show the details of this trace', () => {
          this.side = i;
          this.refresh();
        }, { 'aria-pressed': String(this.side === i) }))));
  }

  // What a card remembers while it is made anew.
  memory_of(name) {
    if (!this.memories.has(name)) this.memories.set(name, {});
    return this.memories.get(name);
  }

  // ---- theme ----

  toggle_theme() {
    const theme = this.theme === 'dark' ? 'light' : 'dark';
    try {
      localStorage.setItem('gapless_theme', theme);
    } catch {
      // the choice lasts as long as the page
    }
    this.set_theme(theme);
  }

  set_theme(theme) {
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
    this.colours = new Colours(theme, this.steps);
    this.refresh();
    this.timelines.forEach((timeline) => timeline.resize());
  }

  // ---- range ----

  set_range(range) {
    this.range = range;
    const length = format_ns(range.end - range.begin);
    const is_whole = range.end - range.begin >= this.window_ns;
    by_id('range_text').textContent = is_whole ? `all ${length}`
      : `${length} from ${format_ns(range.begin, 5)}`;
    this.timelines.forEach((timeline) => timeline.invalidate());
  }

  zoom(factor) {
    const middle = (this.range.begin + this.range.end) / 2;
    this.set_range(zoom_range(this.range, factor, middle, this.window_ns));
  }

  pan(share) {
    const by_ns = share * (this.range.end - this.range.begin);
    this.set_range(pan_range(this.range, by_ns, this.window_ns));
  }

  fit() {
    this.set_range({ begin: 0, end: this.window_ns });
  }

  item_times(timeline, item) {
    const { tasks, bubbles, spans, path } = timeline.step;
    const items = { task: tasks, bubble: bubbles, span: spans, path }[item.kind];
    const scale = timeline.time_scale();
    return { begin: (items.start ?? items.begin)[item.index] / scale,
      end: items.end[item.index] / scale };
  }

  zoom_to(timeline, item) {
    this.show_times(this.item_times(timeline, item));
  }

  // Of a stretch of time in the step of the timeline.
  zoom_to_times(timeline, { begin, end }) {
    const scale = timeline.time_scale();
    this.show_times({ begin: begin / scale, end: end / scale });
  }

  show_times({ begin, end }) {
    const margin = Math.max(10, (end - begin) * 1.5);
    this.set_range(clamp_range(begin - margin, end + margin, this.window_ns));
  }

  // Moves, and zooms in where the item would be too small to see.
  reveal(timeline, item) {
    const { begin, end } = this.item_times(timeline, item);
    const length = this.range.end - this.range.begin;
    const wanted = end - begin < length / 80 ? (end - begin) * 40 : length;
    const kept = Math.max(wanted, (end - begin) * 1.2);
    const is_inside = begin >= this.range.begin && end <= this.range.end;
    if (!is_inside || kept !== length) {
      const middle = (begin + end) / 2;
      this.set_range(clamp_range(middle - kept / 2, middle + kept / 2, this.window_ns));
    }
    this.bring_into_view(timeline, item);
  }

  bring_into_view(timeline, item) {
    timeline.scroll_to(item);
    by_id('stage').scrollIntoView({ block: 'nearest' });
  }

  // ---- selection and filters ----

  is_selected(timeline, kind, index) {
    return timeline.selected?.kind === kind && timeline.selected.index === index;
  }

  on_select(timeline, item) {
    this.select(timeline, item, false);
  }

  select(timeline, item, is_revealed) {
    const is_run = item?.kind === 'path' && timeline.step.path.task[item.index] >= 0 &&
      timeline.step.path_parts[timeline.step.path.part[item.index]] === 'run';
    const shown = is_run ? { kind: 'task', index: timeline.step.path.task[item.index] } : item;
    this.timelines.forEach((one) => {
      one.selected = one === timeline ? shown : null;
      one.request();
    });
    const panel = by_id('panel');
    panel.hidden = !shown;
    panel.replaceChildren();
    if (shown) {
      const close = () => this.select(timeline, null);
      panel.append(button('×', 'Close (Esc)', close, { class: 'close' }),
        ...describe_item(this, timeline, shown, true));
    }
    for (const box of document.querySelectorAll('.table_box')) box.refill();
    this.resize();
    if (shown && is_revealed) this.reveal(timeline, shown);
  }

  // `others`: names under which the kernel runs elsewhere.
  choose_kernel(name, others = []) {
    this.chosen_kernel = this.chosen_kernel === name ? null : name;
    this.chosen_names = new Set([name, ...others]);
    this.chosen_cause = null;
    this.refresh();
  }

  choose_cause(name) {
    this.chosen_cause = this.chosen_cause === name ? null : name;
    this.chosen_kernel = null;
    this.refresh();
  }

  filter() {
    this.match_count = 0;
    for (const timeline of this.timelines) {
      const { step } = timeline;
      let matches = match_tasks(step, this.query);
      if (this.chosen_kernel !== null) {
        const chosen = step.kernels.map((name) => Number(this.chosen_names.has(name)));
        matches ??= new Uint8Array(step.tasks.count).fill(1);
        for (let i = 0; i < matches.length; ++i) matches[i] &= chosen[step.tasks.kernel[i]];
      }
      timeline.matches = matches;
      timeline.match_order = null;
      if (matches) for (const match of matches) this.match_count += match;
      timeline.invalidate();
    }
    const is_filtered = this.timelines[0].matches !== null;
    const noun = this.is_of_streams ? 'kernel' : 'task';
    by_id('matches').textContent = is_filtered
      ? `${format_count(this.match_count)} ${noun}${this.match_count === 1 ? '' : 's'}` : '';
  }

  // The next or previous match by start, in the timeline of the selection.
  step_match(direction) {
    const timeline = this.timelines.find((one) => one.selected) ?? this.timelines[this.side];
    const { tasks } = timeline.step;
    if (!timeline.matches) return;
    if (!timeline.match_order) {
      const found = [];
      timeline.matches.forEach((match, task) => match && found.push(task));
      timeline.match_order = found.sort((a, b) => tasks.start[a] - tasks.start[b] || a - b);
    }
    const order = timeline.match_order;
    if (order.length === 0) return;
    const at = timeline.selected?.kind === 'task' ? order.indexOf(timeline.selected.index) : -1;
    const from = at >= 0 ? at + direction : direction > 0 ? 0 : order.length - 1;
    const index = order[(from + order.length) % order.length];
    this.select(timeline, { kind: 'task', index }, true);
  }

  clear() {
    by_id('search').value = this.query = '';
    by_id('search').blur();
    this.chosen_kernel = this.chosen_cause = null;
    this.select(this.timelines[0], null);
    this.refresh();
  }

  // ---- tooltip and keys ----

  on_hover(timeline, item, event) {
    if (item) this.show_tip(describe_item(this, timeline, item, false), event);
    else this.hide_tip();
  }

  show_tip(nodes, event) {
    const tip = by_id('tooltip');
    tip.replaceChildren(...nodes.filter((node) => node !== null));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const right = event.clientX + 16 + width < window.innerWidth;
    const x = right ? event.clientX + 16 : event.clientX - width - 16;
    const y = Math.min(event.clientY + 14, window.innerHeight - height - 8);
    tip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
  }

  hide_tip() {
    by_id('tooltip').hidden = true;
  }

  show_keys() {
    const dialog = by_id('keys_dialog');
    const lines = kKeys.flatMap(([key, what]) =>
      [element('dt', { text: key }), element('dd', { text: what })]);
    dialog.replaceChildren(element('h2', { text: 'Keys' }), element('dl', null, ...lines),
      element('form', { method: 'dialog' }, element('button', { text: 'Close' })));
    dialog.showModal();
  }

  scale_rows(factor) {
    this.row_scale = Math.min(6, Math.max(1, this.row_scale * factor));
    this.timelines.forEach((timeline) => timeline.resize());
  }

  on_key(event) {
    const is_typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName ?? '');
    if (is_typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (by_id('keys_dialog').open) return;
    const selected = this.timelines.find((one) => one.selected);
    const actions = {
      a: () => this.pan(-0.15), d: () => this.pan(0.15),
      arrowleft: () => this.pan(-0.15), arrowright: () => this.pan(0.15),
      w: () => this.zoom(1 / 1.4), s: () => this.zoom(1.4),
      '+': () => this.zoom(1 / 1.4), '=': () => this.zoom(1 / 1.4), '-': () => this.zoom(1.4),
      0: () => this.fit(), home: () => this.fit(),
      f: () => selected && this.zoom_to(selected, selected.selected),
      '[': () => this.scale_rows(1 / 1.5), ']': () => this.scale_rows(1.5),
      '/': () => by_id('search').focus(), escape: () => this.clear(),
      n: () => this.step_match(1), p: () => this.step_match(-1), '?': () => this.show_keys(),
    };
    const action = actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

// What tests and curious people may look at.
function publish(page) {
  window.gapless_page = {
    page,
    get range() { return { ...page.range }; },
    get window_ns() { return page.window_ns; },
    get selection() {
      const index = page.timelines.findIndex((one) => one.selected);
      return index < 0 ? null : { timeline: index, ...page.timelines[index].selected };
    },
    get match_count() { return page.match_count; },
    get frame_ms() { return Math.max(...page.timelines.map((one) => one.frame_ms)); },
    get frame_count() { return page.timelines.reduce((sum, one) => sum + one.frame_count, 0); },
  };
}

async function open_page() {
  try {
    const steps = [await read_step('first')];
    if (by_id('second')) steps.push(await read_step('second'));
    const diff = by_id('diff') ? JSON.parse(by_id('diff').textContent) : steps[1] ? {} : null;
    const page = new ReportPage(steps, diff);
    page.start();
    publish(page);
  } catch (error) {
    by_id('verdict').textContent = `This page cannot be shown: ${error.message}`;
    throw error;
  }
}

await open_page();
