// Pictures with a cell for every layer: tokens across for what each layer holds, heads down for the density.

// A canvas with axes; `cells` is columns x rows of [r, g, b]. Returns the plot's box.
function picture(host, o) {
  const width = Math.max(260, host.clientWidth);
  const left = o.left;
  const bottom = 42;
  const height = o.rows * o.cell + bottom + 4;
  const ratio = window.devicePixelRatio || 1;
  const canvas = el('canvas', {
    width: Math.round(width * ratio),
    height: Math.round(height * ratio),
    role: 'img',
    'aria-label': o.label,
    style: `height:${height}px`
  });
  const g = canvas.getContext('2d');
  g.scale(ratio, ratio);
  const box = {left, top: 4, width: width - left - 8, height: o.rows * o.cell};
  const small = new OffscreenCanvas(o.columns, o.rows);
  const image = new ImageData(o.columns, o.rows);
  for (let i = 0; i < o.columns * o.rows; ++i) {
    const [r, green, b] = o.colourOf(i % o.columns, Math.floor(i / o.columns));
    image.data.set([r, green, b, 255], 4 * i);
  }
  small.getContext('2d').putImageData(image, 0, 0);
  g.imageSmoothingEnabled = false;
  g.drawImage(small, box.left, box.top, box.width, box.height);

  const style = getComputedStyle(document.documentElement);
  g.fillStyle = style.getPropertyValue('--ink-2');
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

const mapBins = step =>
    Math.max(1, Math.min(promptTokens + step, Math.max(260, byId('map').clientWidth) - 60));

function drawMap(view, bins, what, layer, pick) {
  const empty = colour('--empty');
  const held = colour(what === 'ffn' ? '--ffn' : '--keys');
  const revived = colour('--aux');
  const cold = colour('--cold');
  const cell = Math.max(3, Math.min(32, Math.round(260 / layerCount)));
  const {held: h, revived: r, cold: c} = view.map;
  const {g, box} = picture(byId('map'), {
    left: 48,
    rows: layerCount,
    columns: bins,
    cell,
    xMax: view.shown - 1,
    xShift: .5,
    xTitle: 'token',
    yTitle: 'layer',
    label: `Map of ${layerCount} layers by ${number(view.shown)} tokens: where each layer holds keys.`,
    colourOf: (column, row) => {
      const i = row * bins + column;
      if (h[i] === 0) return empty;
      let tint = mix(held, cold, Math.min(1, c[i] / h[i]));
      tint = mix(tint, revived, Math.min(1, r[i] / h[i]));
      return mix(empty, tint, .25 + .75 * Math.min(1, h[i]));
    },
    describe: ({column, row}) => {
      const i = row * bins + column;
      const first = Math.floor(column * view.shown / bins);
      const last = Math.max(first, Math.floor((column + 1) * view.shown / bins) - 1);
      return `layer ${row}, ${
                 first === last ? 'token ' + number(first) :
                                  `tokens ${number(first)} to ${number(last)}`}\n` +
          `${what === 'ffn' ? 'FFN ran on' : 'keys of'} ${percent(h[i])}` +
          (r[i] > 0 ? `\nrevived ${percent(r[i])}` : '') +
          (c[i] > 0 ? `\nin the cold tier ${percent(c[i])}` : '');
    },
    pick: ({row, x}) => pick(Math.min(view.shown - 1, Math.floor(x * view.shown)), row),
  });
  g.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue('--ink');
  if (layer >= 0) g.strokeRect(box.left - .5, box.top + layer * cell - .5, box.width + 1, cell + 1);
  if (view.shown > promptTokens) {
    const x = Math.round(box.left + box.width * promptTokens / view.shown) + .5;
    g.setLineDash([2, 2]);
    g.strokeRect(x, box.top, 0, box.height);
  }
}

function drawHeads() {
  const heads = Math.max(...layers.map(layer => layer.heads.length));
  const empty = colour('--empty');
  const full = colour('--keys');
  picture(byId('heads'), {
    left: 61,
    rows: heads,
    columns: layerCount,
    cell: Math.max(3, Math.min(12, Math.round(280 / heads))),
    xMax: layerCount - 1,
    xShift: .5,
    xTitle: 'layer',
    yTitle: 'head',
    label: `Heat map of ${heads} heads by ${layerCount} layers: share of pairs computed.`,
    colourOf: (column, row) => mix(
        empty, full, layers[column].heads.length ? layers[column].heads[row] || 0 : layers[column].density),
    describe: ({column, row}) => `layer ${column}, head ${row}\n` +
        (layers[column].heads.length ? percent(layers[column].heads[row] || 0) :
                                       percent(layers[column].density) + ' (all heads)'),
  });
}
