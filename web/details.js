// SPDX-License-Identifier: Apache-2.0
//
// What is said about one task, bubble, span or part of the path: in the tooltip and, with all its
// neighbours, in the panel.
import { button, element, swatch } from './charts.js';
import { first_above, format_count, format_ns, neighbours_of, task_times } from './page_data.js';
import { is_of_streams } from './stream_data.js';

export const kCauseWords = {
  'startup': 'nothing has been dispatched yet',
  'dependency (same kind)': 'the next task waits for a producer on the same kind of core',
  'dependency (other kind)': 'the next task waits for a producer on another kind of core',
  'dependency (submit)': 'the next task has not been submitted yet',
  'placement': 'a ready task waits for a busy core while this one is free',
  'completion': 'the producers have ended, the scheduler does not know it yet',
  'scheduler': 'the task is ready and not dispatched yet',
  'propagation': 'the task is on its way to the core',
  'setup': 'the core has the task and has not started it yet',
  'imbalance': 'no task of this kind is left to start, others still run',
  'drain': 'no task of this kind is left at all',
  'idle': 'nothing runs on this stream; others may run meanwhile',
};

export const kPartWords = {
  'run': 'a task runs that the step waits for',
  'startup': 'before the first dispatch',
  'submit': 'the task has not been submitted yet',
  'completion': 'the producers have ended, the scheduler does not know it yet',
  'scheduler': 'the task is ready and not dispatched yet',
  'handoff': 'the task is on its way to the core, and set up there',
  'core busy': 'its core still runs another task',
  'end': 'after the last task',
};

export function task_name(step, task) {
  return `${step.kernels[step.tasks.kernel[task]]} #${step.tasks.id[task]}`;
}

function head_of(colour, title, note) {
  return element('h3', null, swatch(colour), element('span', { text: title }),
    note ? element('small', { text: note }) : null);
}

function facts(pairs) {
  return element('dl', null, ...pairs.filter((pair) => pair !== null).flatMap(([name, value]) =>
    [element('dt', { text: name }), element('dd', { text: value })]));
}

// Profilers of streams record three of the times at most, and call the submit a launch.
function times_table(step, task) {
  const has_seven = !is_of_streams(step);
  const times = task_times(step.tasks, task).filter(({ at }) => has_seven || !Number.isNaN(at))
    .map((time) => (has_seven || time.name !== 'submit' ? time : { ...time, name: 'launch' }));
  return element('table', { class: 'times' }, element('tbody', null,
    ...times.map(({ name, at, since }) => {
      const is_recorded = !Number.isNaN(at);
      const sign = since < 0 ? '−' : '+';
      const difference = Number.isNaN(since) ? '' : sign + format_ns(Math.abs(since));
      return element('tr', { class: is_recorded ? null : 'absent' },
        element('th', { scope: 'row', text: name }),
        element('td', { text: is_recorded ? format_ns(at, 6) : 'not recorded' }),
        element('td', { text: is_recorded ? difference : '' }));
    })));
}

function neighbour_list(page, timeline, title, others, class_name, is_panel) {
  const { step } = timeline;
  const shown = Array.from(others.slice(0, is_panel ? 60 : 3));
  const text = `${title} ${format_count(others.length)}`;
  const heading = element('h4', { class: class_name, text });
  if (!is_panel) {
    const names = shown.map((task) => task_name(step, task)).join(', ');
    const rest = others.length > shown.length ? ', …' : '';
    return element('p', { class: 'neighbours' }, heading, element('span', { text: names + rest }));
  }
  const left_out = others.length - shown.length;
  const more = `and ${format_count(left_out)} more`;
  return element('div', { class: 'neighbours' }, heading, ...shown.map((task) => {
    const item = { kind: 'task', index: task };
    const link = button('', 'Select', () => page.select(timeline, item, true));
    link.append(swatch(page.colours.kernel(step.kernels[step.tasks.kernel[task]])),
      element('span', { text: task_name(step, task) }),
      element('small', { text: step.cores[step.tasks.core[task]].name }));
    return link;
  }), left_out > 0 ? element('p', { class: 'quiet', text: more }) : null);
}

function describe_task(page, timeline, task, is_panel) {
  const { step } = timeline;
  const { tasks } = step;
  const { producers, consumers } = neighbours_of(tasks, task);
  const kernel = step.kernels[tasks.kernel[task]];
  const layer = tasks.layer[task];
  const parts = [
    head_of(page.colours.kernel(kernel), kernel, `#${tasks.id[task]}`),
    facts([['runs', format_ns(tasks.end[task] - tasks.start[task], 4)],
      ['on', step.cores[tasks.core[task]].name],
      is_of_streams(step) ? null : ['layer', String(layer)]]),
    times_table(step, task),
  ];
  if (is_of_streams(step)) return parts;
  if (!tasks.has_edges) {
    const why = step.edges_left_out ? 'edges are left out of this page' : 'no edges recorded';
    return [...parts, element('p', { class: 'quiet', text: why })];
  }
  return [...parts,
    neighbour_list(page, timeline, 'Producers', producers, 'producers', is_panel),
    neighbour_list(page, timeline, 'Consumers', consumers, 'consumers', is_panel)];
}

// The tasks before and after an idle interval of a core.
function around_bubble(step, bubble) {
  const { tasks, bubbles } = step;
  const core = bubbles.core[bubble];
  const [from, to] = [tasks.core_begin[core], tasks.core_begin[core + 1]];
  const next = first_above(tasks.end, from, to, bubbles.begin[bubble]);
  return { before: next > from ? next - 1 : -1, next: next < to ? next : -1 };
}

function describe_bubble(page, timeline, bubble) {
  const { step } = timeline;
  const { bubbles } = step;
  const cause = step.causes[bubbles.cause[bubble]];
  const { before, next } = around_bubble(step, bubble);
  return [
    head_of(page.colours.cause(cause), cause, cause === 'idle' ? null : 'idle'),
    element('p', { class: 'quiet', text: kCauseWords[cause] ?? '' }),
    facts([['idle for', format_ns(bubbles.end[bubble] - bubbles.begin[bubble], 4)],
      ['on', step.cores[bubbles.core[bubble]].name],
      ['from', format_ns(bubbles.begin[bubble], 6)],
      ['after', before < 0 ? 'the begin of the step' : task_name(step, before)],
      ['before', next < 0 ? 'the end of the step' : task_name(step, next)]]),
  ];
}

function describe_span(page, timeline, span) {
  const { step } = timeline;
  const { spans } = step;
  return [
    head_of(page.colours.span(spans.name[span]), step.span_names[spans.name[span]], 'span'),
    facts([['takes', format_ns(spans.end[span] - spans.begin[span], 4)],
      ['on', step.lanes[spans.lane[span]].name], ['from', format_ns(spans.begin[span], 6)]]),
  ];
}

function describe_path(page, timeline, index) {
  const { step } = timeline;
  const { path } = step;
  const part = step.path_parts[path.part[index]];
  const task = path.task[index];
  const is_run = part === 'run' && task >= 0;
  const colour = is_run ? page.colours.kernel(step.kernels[step.tasks.kernel[task]])
    : page.colours.path_part(part);
  return [
    head_of(colour, is_run ? task_name(step, task) : part, 'critical path'),
    element('p', { class: 'quiet', text: kPartWords[part] ?? '' }),
    facts([['takes', format_ns(path.end[index] - path.begin[index], 4)],
      ['from', format_ns(path.begin[index], 6)],
      task >= 0 && !is_run ? ['before', task_name(step, task)] : null,
      task >= 0 ? ['on', step.cores[step.tasks.core[task]].name] : null]),
  ];
}

// The elements that describe an item.
export function describe_item(page, timeline, item, is_panel) {
  const describe = { task: describe_task, bubble: describe_bubble, span: describe_span,
    path: describe_path }[item.kind];
  return describe(page, timeline, item.index, is_panel);
}
