// ---- a chart as a file of its own: colours of the theme that is shown, title and legend within
const LINE = 20;

function standalone(chart) {
  chart.leave();
  const style = getComputedStyle(root);
  const picture = chart.svg.cloneNode(true);
  const entries = chart.visible(chart.entries), head = chart.note ? 46 : 28;
  const height = head + chart.height + entries.length * LINE + 8;
  ['tabindex', 'role', 'aria-label'].forEach((name) => picture.removeAttribute(name));
  picture.setAttribute('viewBox', `0 ${-head} ${W} ${height}`);
  picture.setAttribute('width', W);
  picture.setAttribute('height', height);
  picture.setAttribute('font-family', 'system-ui, sans-serif');
  const notes = shorten(chart.note || '', 100);
  picture.insertAdjacentHTML('afterbegin', `<title>${escape(chart.title)}</title>
    <style>.axis { fill: var(--soft); font-size: 11.5px; } .grid { stroke: var(--grid); } .base { stroke: var(--line); }</style>
    <rect x="0" y="${-head}" width="${W}" height="${height}" fill="var(--card)"/>
    <text x="12" y="${20 - head}" font-size="15" font-weight="600" fill="var(--ink)">${escape(shorten(chart.title, 80))}</text>
    <text x="12" y="${38 - head}" font-size="12" fill="var(--soft)">${escape(notes)}</text>`);
  picture.insertAdjacentHTML('beforeend', entries.map((entry, i) => {
    const y = chart.height + i * LINE + 12;
    const sign = entry.sign ? `<text x="${LEFT + 5}" y="${y}" font-size="12" fill="var(--${entry.colour})">${entry.sign}</text>`
      : `<path d="M${LEFT} ${y - 4}h18" stroke="var(--${entry.colour})" stroke-width="3"${entry.dashed ? ' stroke-dasharray="3 3"' : ''}/>`;
    return `${sign}
      <text x="${LEFT + 26}" y="${y}" font-size="12" fill="var(--ink)">${escape(shorten(entry.name, 90))}</text>`;
  }).join(''));
  const text = new XMLSerializer().serializeToString(picture);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${text.replace(/var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim())}\n`;
}

// A download asks no host, so the Content-Security-Policy of the page lets it pass.
function save(name, text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
