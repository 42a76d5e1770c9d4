// Maps of cells with axes, legends.

import {colour, el, hideTip, number, showTip} from './dom.js';

// Steps of 1, 2 or 5 times a power of ten, about `count` up to `most`.
export function ticks(most, count) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(factor => factor * power >= rough) * power;
  const out = [];
  for (let i = 0; i * step <= most * (1 + 1e-9); ++i) out.push(i * step);
  return out;
}

// Entries with a `swatch` of a class and a style, or with a word in the classes `sample`.
export function legend(host, entries) {
  host.replaceChildren(...entries.map(
      ({swatch, sample, text}) =>
          el('li', {},
             sample ? el('span', {class: 'sample ' + sample}, 'word') :
                      el('span', {class: 'swatch ' + swatch.class, style: swatch.style || null}),
             text)));
}

const rgb = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

// A canvas of rows x columns cells with axes. `colourOf(column, row)` is [r, g, b]; `describe` makes the text beside the
// pointer of {column, row, x: share of the width}, and `pick` gets the same at a click. Returns the context and the box
// of the cells.
export function cellMap(host, o) {
  const width = Math.max(260, host.clientWidth);
  const left = o.left;
  const top = 9;  // the upper half of the first row's label, where rows are low
  const bottom = 42;
  const height = top + o.rows * o.cell + bottom;
  const ratio = window.devicePixelRatio || 1;
  const canvas = el('canvas', {
    width: Math.round(width * ratio),
    height: Math.round(height * ratio),
    role: 'img',
    'aria-label': o.label
  });
  canvas.style.height = height + 'px';
  const g = canvas.getContext('2d');
  g.scale(ratio, ratio);
  const box = {left, top, width: width - left - 8, height: o.rows * o.cell};
  const small = new OffscreenCanvas(o.columns, o.rows);
  const image = new ImageData(o.columns, o.rows);
  for (let i = 0; i < o.columns * o.rows; ++i) {
    const [r, green, b] = o.colourOf(i % o.columns, Math.floor(i / o.columns));
    image.data.set([r, green, b, 255], 4 * i);
  }
  small.getContext('2d').putImageData(image, 0, 0);
  g.imageSmoothingEnabled = false;
  g.drawImage(small, box.left, box.top, box.width, box.height);

  g.fillStyle = rgb(colour('--ink-2'));
  g.font = '12px ' + getComputedStyle(document.body).fontFamily;
  g.textAlign = 'right';
  g.textBaseline = 'middle';
  for (const row of ticks(o.rows - 1, Math.max(2, Math.floor(box.height / 30)))) {
    if (Number.isInteger(row)) g.fillText(String(row), left - 6, box.top + (row + .5) * o.cell);
  }
  g.textAlign = 'center';
  g.textBaseline = 'alphabetic';
  for (const value of ticks(o.xMax, Math.max(2, Math.floor(box.width / 90)))) {
    const x = box.left + box.width * (value + o.xShift) / (o.xMax + 2 * o.xShift);
    if (Number.isInteger(value))
      g.fillText(
          number(value), Math.min(x, width - 4 - g.measureText(number(value)).width / 2),
          box.top + box.height + 16);
  }
  g.fillText(o.xTitle, box.left + box.width / 2, height - 8);
  g.save();
  g.translate(12, box.top + box.height / 2);
  g.rotate(-Math.PI / 2);
  g.fillText(o.yTitle, 0, 0);
  g.restore();
  const cellAt = event => {
    const bounds = canvas.getBoundingClientRect();
    const x = (event.clientX - bounds.left - box.left) / box.width;
    const y = (event.clientY - bounds.top - box.top) / box.height;
    return x < 0 || x >= 1 || y < 0 || y >= 1 ?
        null :
        {column: Math.floor(x * o.columns), row: Math.floor(y * o.rows), x};
  };
  canvas.addEventListener('pointermove', event => {
    const cell = cellAt(event);
    if (cell)
      showTip(o.describe(cell), event.clientX, event.clientY);
    else
      hideTip();
  });
  canvas.addEventListener('pointerleave', hideTip);
  if (o.pick) {
    canvas.style.cursor = 'pointer';
    canvas.addEventListener('click', event => {
      const cell = cellAt(event);
      if (cell) o.pick(cell);
    });
  }
  host.replaceChildren(canvas);
  return {g, box};
}
