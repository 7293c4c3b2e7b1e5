// SPDX-License-Identifier: Apache-2.0
//
// Pointer and wheel on a timeline: drag pans, wheel zooms around the pointer, shift and wheel
// scrolls the lanes, click selects, double click zooms to what was hit. Keys belong to the page.
import { clamp_range, pan_range, zoom_range } from './page_data.js';

const kClickPixels = 4;  // a press that moves less is a click

function place_of(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

export function listen_to(timeline) {
  const { canvas, page, scroller } = timeline;
  listen_to_wheel(timeline);
  listen_to_drag(timeline);
  listen_to_overview(timeline);
  scroller.addEventListener('scroll', () => timeline.invalidate());
  canvas.addEventListener('pointerleave', () => {
    timeline.pointer_x = timeline.hovered = null;
    page.on_hover(timeline, null, null);
    timeline.request();
  });
  canvas.addEventListener('dblclick', (event) => {
    const place = place_of(canvas, event);
    const item = timeline.hit(place.x, place.y);
    if (item) page.zoom_to(timeline, item);
  });
}

function listen_to_wheel(timeline) {
  const { canvas, page, scroller } = timeline;
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    const [across, down] = [event.deltaX * unit, event.deltaY * unit];
    if (event.shiftKey) {
      scroller.scrollTop += down || across;
      return;
    }
    const length = page.range.end - page.range.begin;
    if (Math.abs(across) > Math.abs(down)) {
      page.set_range(pan_range(page.range, across / timeline.plot_width * length, page.window_ns));
      return;
    }
    const factor = Math.exp(Math.max(-1, Math.min(1, down * 0.002)));
    const anchor = timeline.time_at(place_of(canvas, event).x);
    page.set_range(zoom_range(page.range, factor, anchor, page.window_ns));
  }, { passive: false });
}

function listen_to_drag(timeline) {
  const { canvas, page, scroller } = timeline;
  let press = null;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    const top = scroller.scrollTop;
    press = { ...place_of(canvas, event), range: page.range, top, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    const { x, y } = place_of(canvas, event);
    timeline.pointer_x = x;
    if (press) {
      const distance = Math.abs(x - press.x) + Math.abs(y - press.y);
      press.moved ||= distance >= kClickPixels;
      if (press.moved) {
        const length = press.range.end - press.range.begin;
        const by_ns = (press.x - x) / timeline.plot_width * length;
        canvas.classList.add('dragging');
        page.on_hover(timeline, null, null);
        scroller.scrollTop = press.top + press.y - y;
        page.set_range(pan_range(press.range, by_ns, page.window_ns));
      }
      return;
    }
    timeline.hovered = timeline.hit(x, y);
    page.on_hover(timeline, timeline.hovered, event);
    timeline.request();
  });
  const release = (event) => {
    canvas.classList.remove('dragging');
    if (press && !press.moved && event.type === 'pointerup') {
      page.on_select(timeline, timeline.hit(press.x, press.y));
    }
    press = null;
  };
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', release);
}

// A press inside the marked part moves it; elsewhere it first jumps there.
function listen_to_overview(timeline) {
  const { overview, page } = timeline;
  let grip = null;
  const time_at = (event) => {
    const share = (place_of(overview, event).x - timeline.gutter) / timeline.plot_width;
    return share * page.window_ns;
  };
  const move = (event) => {
    const begin = time_at(event) - grip;
    const length = page.range.end - page.range.begin;
    page.set_range(pan_range({ begin: 0, end: length }, begin, page.window_ns));
  };
  overview.addEventListener('pointerdown', (event) => {
    const time = time_at(event);
    const { begin, end } = page.range;
    if (end - begin >= page.window_ns) {
      const length = page.window_ns / 4;
      page.set_range(clamp_range(time - length / 2, time + length / 2, page.window_ns));
    }
    const is_inside = time >= page.range.begin && time <= page.range.end;
    grip = is_inside ? time - page.range.begin : (page.range.end - page.range.begin) / 2;
    overview.setPointerCapture(event.pointerId);
    move(event);
  });
  overview.addEventListener('pointermove', (event) => {
    if (grip !== null) move(event);
  });
  for (const name of ['pointerup', 'pointercancel']) {
    overview.addEventListener(name, () => { grip = null; });
  }
}
