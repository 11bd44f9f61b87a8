// ---- draw, and say what was drawn
charts.forEach((chart) => {
  try { chart.draw(); } catch (error) { failed(`${chart.name}: ${error.message}`); }
  // What has no line to draw says so in words; that is a picture too, but not a chart.
  chart.box.dataset.state = chart.drawn() ? 'drawn' : chart.entries.length ? 'blank' : 'empty';
});
root.dataset.charts = charts.map((chart) => `${chart.name}=${chart.box.dataset.state}${chart.isFigure ? ` ${chart.counts()}` : ''}`).join('|');
root.dataset.requests = performance.getEntriesByType('resource').length;
root.dataset.ready = 'yes';
