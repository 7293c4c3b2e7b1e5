// SPDX-License-Identifier: Apache-2.0
//
// The colours of the page, light and dark: kernels clear, causes of idle time muted, so that a
// glance at the timeline tells work from waiting.
import { once, run_ns_by_kernel } from './page_data.js';

// Kernels by rank of their core time. Mid-bright, so that they stand on white and on black.
const kKernelColours = {
  light: ['#3a6fd8', '#16a08a', '#e8963a', '#8159cf', '#d2527f', '#57a639', '#2aa5cf', '#c9a21b',
    '#a85fc9', '#de6144', '#5d7f1c', '#4a58ab', '#e38bb0', '#0e7d70'],
  dark: ['#5b8ff0', '#25b89f', '#f0a54c', '#9b78e6', '#e06a95', '#6fbd50', '#45b9e0', '#d9b534',
    '#bd7bdc', '#ec7757', '#86aa3c', '#7482d8', '#eda3c2', '#2a9d8f'],
};
const kOtherKernel = { light: '#7d8794', dark: '#8b95a3' };

// Causes are muted: greys for the ends of the step, lilacs for waiting on others, sands for
// overheads. In the order light, dark.
const kCauseColours = {
  'startup': ['#d5d9df', '#434a55'],
  'dependency (same kind)': ['#c9d3ec', '#3f4c73'],
  'dependency (other kind)': ['#dfd6ee', '#4a4062'],
  'dependency (submit)': ['#bfdcea', '#335a70'],
  'placement': ['#cbe2c4', '#3f5c3b'],
  'completion': ['#f3dfae', '#6e5d2d'],
  'scheduler': ['#f5c9a3', '#85512f'],
  'propagation': ['#e5d6c0', '#5c513d'],
  'setup': ['#f0c4b8', '#78443b'],
  'imbalance': ['#c3d5d8', '#3a5b62'],
  'drain': ['#e1e2dc', '#4b4b45'],
  'idle': ['#eceff3', '#20252d'],  // of streams, for which there are no causes
};
// What a device with streams does, as stream_data.js names it.
const kDeviceColours = {
  'computing': ['#3a6fd8', '#5b8ff0'],
  'computing and communicating': ['#8159cf', '#9b78e6'],
  'communicating alone': ['#e8963a', '#f0a54c'],
  'copying alone': ['#16a08a', '#25b89f'],
  'idle: next kernel not launched': ['#dd9c8d', '#94564b'],
  'idle: next kernel launched': ['#ecd49a', '#7d6a35'],
  'idle: launch not known': ['#cfd4db', '#4a525e'],
};
const kPathCauses = {
  'startup': 'startup', 'submit': 'dependency (submit)', 'completion': 'completion',
  'scheduler': 'scheduler', 'handoff': 'propagation', 'core busy': 'placement', 'end': 'drain',
};
const kSpanColours = {
  light: ['#8fa3bd', '#a9b8a0', '#b9a6bf', '#c3ab94', '#94b4b8', '#b0b3bd'],
  dark: ['#4f6380', '#5b6b52', '#6a5772', '#73604c', '#4a686c', '#5a5d68'],
};
const kSurfaces = {
  light: { plot: '#f7f8fa', card: '#ffffff', ink: '#11151c', text: '#3c4450', quiet: '#8a93a0',
    line: '#e3e6ea', accent: '#2f62cf', producer: '#0b74c4', consumer: '#d3600a', mark: '#ffc400' },
  dark: { plot: '#14171c', card: '#1a1e25', ink: '#ffffff', text: '#c3cad4', quiet: '#78828f',
    line: '#2a303a', accent: '#6f9df5', producer: '#4cb0f5', consumer: '#ff9a4a', mark: '#ffd54a' },
};

export function rgb_of(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

export function mix(rgb, other, share) {
  return rgb.map((value, i) => value * (1 - share) + other[i] * share);
}

// All colours of a page: kernels of all its steps by rank, the same name in the same colour.
export class Colours {
  constructor(theme, steps) {
    this.theme = theme;
    this.surface = kSurfaces[theme];
    const totals = new Map();
    for (const step of steps) {
      const run_ns = once(step, 'run by kernel', () => run_ns_by_kernel(step));
      step.kernels.forEach((name, i) => totals.set(name, (totals.get(name) ?? 0) + run_ns[i]));
    }
    const ranked = [...totals].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    this.ranked_kernels = ranked.map(([name]) => name);
    this.kernel_of = new Map(this.ranked_kernels.map((name, rank) =>
      [name, kKernelColours[theme][rank] ?? kOtherKernel[theme]]));
  }

  kernel(name) {
    return this.kernel_of.get(name) ?? kOtherKernel[this.theme];
  }

  cause(name) {
    return (kCauseColours[name] ?? ['#d8d8d8', '#3d3d3d'])[this.theme === 'light' ? 0 : 1];
  }

  device_part(name) {
    return (kDeviceColours[name] ?? kCauseColours.idle)[this.theme === 'light' ? 0 : 1];
  }

  path_part(name) {
    return this.cause(kPathCauses[name] ?? name);
  }

  span(index) {
    return kSpanColours[this.theme][index % 6];
  }
}
