// ---- figures: each stands where its block of JSON is
const colours = ['c1', 'c3', 'c2', 'c4', 'c6', 'c7'];
const paperColours = ['c5', 'c8'];

// Round numbers between the ends; on a log scale powers of ten, or the values themselves where there are few powers.
function numberTicks(x, log) {
  if (!log || x.length < 2) return x.length < 2 ? x : ticks(x[0], x[x.length - 1], 6);
  const decades = [];
  for (let v = 10 ** Math.ceil(Math.log10(x[0]) - 1e-9); v <= x[x.length - 1] * (1 + 1e-9); v *= 10) decades.push(v);
  return decades.length > 2 ? decades : x.filter((_, i) => i % Math.ceil(x.length / 8) === 0);
}

function chartOf(data) {
  const categories = data.x.names;
  const points = [...data.series, ...data.published].flatMap((series) => series.points);
  const x = categories ? categories.map((_, i) => i) : [...new Set(points.map((point) => point.x))].filter((v) => v !== null).sort((a, b) => a - b);
  const lines = data.series.map((series, i) => {
    const found = x.map((v) => series.points.find((point) => point.x === v));
    return {
      name: series.name, form: series.form, colour: colours[i % colours.length], dashed: i >= colours.length, joined: true, dots: true,
      values: found.map((point) => point ? point.y : null),
      intervals: found.map((point) => point ? point.interval : null),
      invalid: found.map((point) => Boolean(point && point.is_invalid)),
    };
  });
  const published = data.published.map((group, i) => ({
    ...group, colour: paperColours[i % paperColours.length], dashed: true, sign: group.points.some((point) => point.x !== null) ? '◇' : '',
  }));
  const isPositive = points.every((point) => point.y > 0);
  return new Chart({
    name: data.name, title: data.title, note: data.note, unit: data.y.unit, x, lines, published, categories, isFigure: true,
    xTitle: axisTitle(data.x), yTitle: axisTitle(data.y), inset: categories ? 0 : 12, xLog: data.x.scale === 'log',
    canLog: isPositive && points.length > 0, log: data.y.scale === 'log',
    xTicks: categories ? x : numberTicks(x, data.x.scale === 'log'),
    xTick: (v) => categories ? categories[v] : tick(v, data.x.unit),
    xText: (v) => categories ? categories[v] : figure(v, data.x.unit),
    ...(data.empty ? { empty: 'no data', note: `No data: ${data.empty}` } : {}),
  });
}

for (const block of document.querySelectorAll('script.figure')) {
  const chart = chartOf(JSON.parse(block.textContent));
  chart.button('SVG', () => save(`${chart.name}.svg`, standalone(chart)));
  block.before(chart.box);
}
