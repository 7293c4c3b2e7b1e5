// SPDX-License-Identifier: Apache-2.0
//
// The parts that the page is put together from: elements, tables that sort, stacked bars and
// histograms. Texts come from traces, so all of them are set as text and never as markup.
import { format_count, format_ns, format_share } from './page_data.js';

const kSvg = 'http://www.w3.org/2000/svg';

function set_each(values, set) {
  for (const [name, value] of Object.entries(values)) set(name, value);
}

// Properties: class, text, style, on (events), and attributes; null ones are left out.
export function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined) continue;
    if (name === 'class') made.className = value;
    else if (name === 'text') made.textContent = value;
    else if (name === 'style') set_each(value, (key, text) => made.style.setProperty(key, text));
    else if (name === 'on') set_each(value, (event, call) => made.addEventListener(event, call));
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function button(text, title, on_click, properties) {
  return element('button', { type: 'button', text, title, on: { click: on_click }, ...properties });
}

export function swatch(colour) {
  return element('i', { class: 'swatch', style: { '--colour': colour } });
}

export function card(title, subtitle, class_name, ...children) {
  return element('section', { class: `card ${class_name}`, 'aria-label': title },
    element('header', null, element('h2', { text: title }),
      subtitle ? element('span', { class: 'subtitle', text: subtitle }) : null),
    ...children);
}

function cell_of(column, row) {
  const cell = element('td', { class: column.is_number ? 'number' : 'words' });
  const colour = column.swatch?.(row);
  if (colour) cell.append(swatch(colour));
  cell.append(column.text ? column.text(row) : String(column.value(row) ?? '–'));
  if (column.bar) {
    const share = Math.max(0, Math.min(1, Math.abs(column.bar(row)) || 0));
    const kind = !column.is_signed ? '' : column.bar(row) < 0 ? 'less' : 'worse';
    cell.classList.add('barred');
    cell.append(element('span', { class: `bar ${kind}` },
      element('i', { style: { width: `${(share * 100).toFixed(2)}%` } })));
  }
  return cell;
}

function compare_rows(column, sign) {
  return (a, b) => {
    const [left, right] = [column.value(a), column.value(b)];
    if (typeof left === 'string') return sign * left.localeCompare(right);
    const is_left = Number.isFinite(left);
    const is_right = Number.isFinite(right);
    if (!is_left || !is_right) return is_left === is_right ? 0 : is_left ? -1 : 1;
    return sign * (left - right);
  };
}

// Columns: title, value(row), and text(row), is_number, swatch(row), bar(row) in -1..1, is_signed:
// less is good and more is bad. Numbers sort from the largest first. on_click(row) for rows, of
// which is_chosen(row) marks some. `memory` is an object in which the order outlives the table.
export function make_table({ columns, rows, on_click, is_chosen, limit = 10, empty = 'none',
  memory = {} }) {
  if (rows.length === 0) return element('p', { class: 'empty', text: empty });
  const body = element('tbody');
  const more = element('button', { type: 'button', class: 'more' });
  const fill = () => {
    const column = columns[memory.column];
    const shown = memory.is_all ? Infinity : limit;
    const ordered = column ? rows.slice().sort(compare_rows(column, memory.goes_down ? -1 : 1))
      : rows;
    heads.forEach((head, i) => {
      if (i !== memory.column) head.removeAttribute('aria-sort');
      else head.setAttribute('aria-sort', memory.goes_down ? 'descending' : 'ascending');
    });
    body.replaceChildren(...ordered.slice(0, shown).map((row) => {
      const line = element('tr', null, ...columns.map((column) => cell_of(column, row)));
      if (!on_click) return line;
      line.tabIndex = 0;
      line.classList.add('clickable');
      line.setAttribute('aria-selected', String(Boolean(is_chosen?.(row))));
      line.addEventListener('click', () => on_click(row));
      line.addEventListener('keydown', (event) => {
        if (event.key === 'Enter') on_click(row);
      });
      return line;
    }));
    more.hidden = rows.length <= limit;
    more.textContent = memory.is_all ? 'show fewer' : `show all ${format_count(rows.length)}`;
  };
  more.addEventListener('click', () => {
    memory.is_all = !memory.is_all;
    fill();
  });
  const heads = columns.map((column, i) => {
    const head = element('th', { scope: 'col', class: column.is_number ? 'number' : 'words' });
    head.append(button(column.title, 'Sort', () => {
      memory.goes_down = memory.column === i ? !memory.goes_down : Boolean(column.is_number);
      memory.column = i;
      fill();
    }));
    return head;
  });
  fill();
  const table = element('table', null,
    element('thead', null, element('tr', null, ...heads)), body);
  const box = element('div', { class: 'table_box' }, table, more);
  box.refill = fill;
  return box;
}

// Parts: {label, ns, colour, on_click}. `on_hover`(part or null, event) shows the numbers.
export function stacked_bar(parts, total_ns, class_name, on_hover) {
  const bar = element('div', { class: `stack ${class_name}` });
  for (const part of parts) {
    if (!(part.ns > 0)) continue;
    const share = part.ns / Math.max(1, total_ns);
    const piece = element('i', { style: { '--colour': part.colour, '--share': share } });
    piece.addEventListener('pointermove', (event) => on_hover(part, event));
    piece.addEventListener('pointerleave', () => on_hover(null));
    if (part.on_click) piece.addEventListener('click', part.on_click);
    bar.append(piece);
  }
  return bar;
}

// The numbers of a stacked bar as a list of its parts.
export function part_list(parts, total_ns) {
  return element('div', { class: 'parts' }, ...parts.map((part) => {
    const properties = { class: 'part', 'aria-pressed': String(Boolean(part.is_chosen)) };
    const line = part.on_click ? button('', part.title, part.on_click, properties)
      : element('div', properties);
    line.append(swatch(part.colour), element('span', { class: 'label', text: part.label }),
      element('span', { class: 'share', text: format_share(part.ns / total_ns) }),
      element('span', { class: 'time', text: format_ns(part.ns) }));
    return line;
  }));
}

function svg_element(tag, attributes) {
  const made = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// What make_histogram() gives, with a colour for each series.
export function histogram_view({ histogram, colours, is_weighted, on_hover }) {
  const { edges, sums } = histogram;
  if (edges.length === 0) return element('p', { class: 'empty', text: 'none' });
  const totals = Array.from(sums[0], (none, bin) => sums.reduce((sum, own) => sum + own[bin], 0));
  const highest = Math.max(...totals);
  const svg = svg_element('svg', { viewBox: `0 0 ${totals.length} 100`, class: 'histogram' });
  svg.setAttribute('preserveAspectRatio', 'none');
  totals.forEach((total, bin) => {
    let top = 100;
    const place = svg_element('g', {});
    place.append(svg_element('rect', { x: bin, y: 0, width: 1, height: 100, class: 'back' }));
    sums.forEach((own, i) => {
      const height = own[bin] / highest * 98;
      if (height <= 0) return;
      top -= height;
      const box = { x: bin + 0.06, y: top, width: 0.88, height, fill: colours[i] };
      place.append(svg_element('rect', box));
    });
    const range = `${format_ns(edges[bin])} to ${format_ns(edges[bin + 1])}`;
    const value = is_weighted ? format_ns(total) : format_count(total);
    place.addEventListener('pointermove', (event) => on_hover(range, value, event));
    place.addEventListener('pointerleave', () => on_hover(null));
    svg.append(place);
  });
  const middle = edges[Math.floor(edges.length / 2)];
  return element('div', { class: 'chart' }, svg, element('div', { class: 'chart_axis' },
    ...[edges[0], middle, edges[edges.length - 1]].map((edge) =>
      element('span', { text: format_ns(edge) }))));
}

// One bar for each length, from zero; the chosen one is marked.
export function length_bars(lengths, chosen, on_hover) {
  const highest = Math.max(...lengths, 1);
  return element('div', { class: 'length_bars' }, ...lengths.map((length, i) => {
    const bar = element('i', { class: i === chosen ? 'chosen' : null,
      style: { height: `${(length / highest * 100).toFixed(2)}%` } });
    bar.addEventListener('pointermove', (event) => on_hover(length, event));
    bar.addEventListener('pointerleave', () => on_hover(null));
    return bar;
  }));
}
