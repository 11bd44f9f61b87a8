'use strict';
// The page's scripts are one: all parts stand in one function and share its names. This part comes first: errors, themes, numbers.
// What was drawn and what went wrong is written into the attributes of <html>, where a test (or a person with the inspector) finds it.
const root = document.documentElement;
const failures = [];
const failed = (what) => { failures.push(String(what)); root.dataset.errors = failures.join('; '); };
root.dataset.errors = '';
window.addEventListener('error', (event) => failed(event.message));
window.addEventListener('unhandledrejection', (event) => failed(event.reason));

// ---- light and dark
const wish = window.matchMedia('(prefers-color-scheme: dark)');
const theme = (dark) => { root.dataset.theme = dark ? 'dark' : 'light'; };
theme(wish.matches);
wish.addEventListener('change', (event) => theme(event.matches));
document.getElementById('theme').addEventListener('click', () => theme(root.dataset.theme !== 'dark'));

// ---- paper: folded parts stand open on it
window.addEventListener('beforeprint', () => document.querySelectorAll('details:not([open])').forEach((part) => {
  part.open = true;
  part.dataset.folded = 'yes';
}));
window.addEventListener('afterprint', () => document.querySelectorAll('details[data-folded]').forEach((part) => {
  part.open = false;
  delete part.dataset.folded;
}));

// ---- words and numbers
const escape = (text) => String(text).replace(/[&<>"']/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' })[c]);
const trim = (value, digits) => value.toLocaleString('en-US', { maximumFractionDigits: digits });
const show = {
  '1': (v) => trim(v, v < 100 ? 2 : 0),
  '1/s': (v) => `${trim(v, v < 10 ? 2 : v < 1000 ? 1 : 0)} /s`,
  '%': (v) => `${trim(v, v > 99.99 || v < 0.01 ? 4 : 2)} %`,
  us: (v) => v < 1e3 ? `${trim(v, 0)} µs` : v < 1e6 ? `${trim(v / 1e3, v < 1e4 ? 2 : 1)} ms` : `${trim(v / 1e6, 2)} s`,
  B: (v) => v < 1e3 ? `${trim(v, 0)} B` : v < 1e6 ? `${trim(v / 1e3, 1)} kB` : v < 1e9 ? `${trim(v / 1e6, 1)} MB` : `${trim(v / 1e9, 2)} GB`,
  'B/s': (v) => `${show.B(v)}/s`,
  s: (v) => `${trim(v, v < 10 ? 3 : 1)} s`,
};
const plain = (value) => trim(value, Math.abs(value) < 10 ? 3 : 1);
const figure = (value, unit) => value === null || value === undefined ? '–' : show[unit] ? show[unit](value) : `${plain(value)} ${unit}`;
// On an axis a unit of the user's own stands in the title, once.
const tick = (value, unit) => show[unit] ? show[unit](value) : plain(value);
const axisTitle = (axis) => !axis.unit || show[axis.unit] ? axis.title : `${axis.title} (${axis.unit})`;
const clock = (second) => new Date(second * 1000).toISOString().slice(11, 19);
