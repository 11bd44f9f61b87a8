'use strict';
// Draws the report from the two JSON blocks of the page. What was drawn and what went wrong is written into the attributes of
// <html>, where a test (or a person with the inspector) finds it.
(() => {
  const root = document.documentElement;
  const failures = [];
  const failed = (what) => { failures.push(String(what)); root.dataset.errors = failures.join('; '); };
  root.dataset.errors = '';
  window.addEventListener('error', (event) => failed(event.message));
  window.addEventListener('unhandledrejection', (event) => failed(event.reason));

  const report = JSON.parse(document.getElementById('report').textContent);
  const series = JSON.parse(document.getElementById('series').textContent);

  // ---- light and dark
  const wish = window.matchMedia('(prefers-color-scheme: dark)');
  const theme = (dark) => { root.dataset.theme = dark ? 'dark' : 'light'; };
  theme(wish.matches);
  wish.addEventListener('change', (event) => theme(event.matches));
  document.getElementById('theme').addEventListener('click', () => theme(root.dataset.theme !== 'dark'));

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
  };
  const figure = (value, unit) => value === null || value === undefined ? '–' : show[unit](value);
  const clock = (second) => new Date(second * 1000).toISOString().slice(11, 19);

  // ---- a chart: lines or stacked areas over time, or over any other scale of x
  const W = 640, H = 250, LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 26;
  const charts = [];

  function ticks(low, high, count) {
    const span = high - low || 1;
    const raw = span / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
    const out = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(v);
    return out;
  }

  class Chart {
    // options: name, title, note, unit, x (numbers), lines [{ name, values, colour, dashed, filled }], stacked, log, xText, xTicks
    constructor(options) {
      Object.assign(this, { log: false, stacked: false, xText: clock }, options);
      this.lines = this.lines.filter((line) => line.values.some((v) => v !== null));
      this.lines.forEach((line) => { line.visible = true; });
      // Where the worst is far from the usual, only a log scale shows both.
      if (this.canLog) {
        const positive = (values) => values.filter((v) => v > 0).sort((a, b) => a - b);
        const usual = this.lines.length ? positive(this.lines[0].values) : [];
        const all = positive(this.lines.flatMap((line) => line.values));
        this.log = this.log || usual.length > 0 && all[all.length - 1] > 25 * usual[usual.length >> 1];
      }
      this.box = document.createElement('figure');
      this.box.dataset.name = this.name;
      this.box.innerHTML = `<figcaption><span>${escape(this.title)}</span></figcaption><p class="note">${escape(this.note || '')}</p>
        <svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${escape(this.title)}"></svg><div class="legend"></div>`;
      this.svg = this.box.querySelector('svg');
      if (this.canLog) {
        const button = document.createElement('button');
        button.textContent = 'log scale';
        button.addEventListener('click', () => { this.log = !this.log; button.textContent = this.log ? 'linear scale' : 'log scale'; this.draw(); });
        button.textContent = this.log ? 'linear scale' : 'log scale';
        this.box.querySelector('figcaption').append(button);
      }
      const legend = this.box.querySelector('.legend');
      this.lines.forEach((line) => {
        const button = document.createElement('button');
        button.innerHTML = `<i style="border-top:3px ${line.dashed ? 'dotted' : 'solid'} var(--${line.colour})"></i>${escape(line.name)}`;
        button.setAttribute('aria-pressed', 'true');
        button.addEventListener('click', () => {
          line.visible = !line.visible;
          button.setAttribute('aria-pressed', String(line.visible));
          this.draw();
        });
        legend.append(button);
      });
      this.svg.addEventListener('pointermove', (event) => this.point(event));
      this.svg.addEventListener('pointerleave', () => this.leave());
      charts.push(this);
    }

    draw() {
      const lines = this.lines.filter((line) => line.visible);
      const n = this.x.length;
      let sums = new Array(n).fill(0);
      const shapes = lines.map((line) => {
        if (!this.stacked) return { line, low: null, high: line.values };
        const low = sums;
        sums = sums.map((sum, i) => sum + (line.values[i] || 0));
        return { line, low, high: sums };
      });
      const all = shapes.flatMap((shape) => shape.high).filter((v) => v !== null);
      const positive = all.filter((v) => v > 0);
      let top = Math.max(...all, 0) || 1, bottom = 0;
      if (this.log && positive.length) {
        bottom = 10 ** Math.floor(Math.log10(Math.min(...positive)));
        top = Math.max(10 ** Math.ceil(Math.log10(top)), bottom * 10);
      } else {
        top *= 1.06;
      }
      const log = this.log && positive.length > 0;
      const first = this.x[0], last = this.x[n - 1];
      const X = (v) => n < 2 || last === first ? LEFT + (W - LEFT - RIGHT) / 2 : LEFT + (v - first) / (last - first) * (W - LEFT - RIGHT);
      const share = (v) => log ? Math.log(Math.max(v, bottom) / bottom) / Math.log(top / bottom) : v / top;
      const Y = (v) => H - BOTTOM - share(v) * (H - TOP - BOTTOM);
      this.X = X;
      let html = '';
      const levels = log
        ? Array.from({ length: Math.round(Math.log10(top / bottom)) + 1 }, (_, i) => bottom * 10 ** i)
        : ticks(0, top, 4);
      for (const v of levels) {
        html += `<line class="grid" x1="${LEFT}" x2="${W - RIGHT}" y1="${Y(v).toFixed(1)}" y2="${Y(v).toFixed(1)}"/>
          <text class="axis" x="${LEFT - 6}" y="${(Y(v) + 4).toFixed(1)}" text-anchor="end">${show[this.unit](v)}</text>`;
      }
      const marks = this.xTicks || (n < 2 ? [first] : ticks(0, last - first, 6).map((v) => v + first));
      for (const v of marks.filter((v) => v !== undefined)) {
        const x = X(v);
        const anchor = x > W - 40 ? 'end' : 'middle';
        html += `<text class="axis" x="${x.toFixed(1)}" y="${H - 7}" text-anchor="${anchor}">${escape(this.xText(v))}</text>`;
      }
      html += `<line class="base" x1="${LEFT}" x2="${W - RIGHT}" y1="${H - BOTTOM}" y2="${H - BOTTOM}"/>`;
      this.drawnMarks = 0;
      for (const { line, low, high } of shapes) {
        const colour = `var(--${line.colour})`;
        let path = '', pen = false;
        for (let i = 0; i < n; i++) {
          if (high[i] === null) { pen = false; continue; }
          path += `${pen ? 'L' : 'M'}${X(this.x[i]).toFixed(1)} ${Y(high[i]).toFixed(1)}`;
          const alone = (i === 0 || high[i - 1] === null) && (i === n - 1 || high[i + 1] === null);
          if (alone) html += `<circle cx="${X(this.x[i]).toFixed(1)}" cy="${Y(high[i]).toFixed(1)}" r="2.5" fill="${colour}"/>`;
          pen = true;
          this.drawnMarks++;
        }
        if (low) {
          let area = path;
          for (let i = n - 1; i >= 0; i--) area += `L${X(this.x[i]).toFixed(1)} ${Y(low[i]).toFixed(1)}`;
          html += `<path d="${area}Z" fill="${colour}" fill-opacity="0.55" stroke="none"/>`;
        } else if (line.filled && n > 1) {
          html += `<path d="${path}L${X(last).toFixed(1)} ${H - BOTTOM}L${X(first).toFixed(1)} ${H - BOTTOM}Z" fill="${colour}" fill-opacity="0.12" stroke="none"/>`;
        }
        html += `<path d="${path}" fill="none" stroke="${colour}" stroke-width="${line.dashed ? 1.6 : 1.8}" stroke-linejoin="round"${line.dashed ? ' stroke-dasharray="5 4"' : ''}/>`;
      }
      if (!lines.length) html += `<text class="axis" x="${W / 2}" y="${H / 2}" text-anchor="middle">nothing was measured</text>`;
      this.svg.innerHTML = html;
    }

    // Something is on the picture: a shape with points, and a size on the screen.
    drawn() {
      const size = this.svg.getBoundingClientRect();
      const shapes = [...this.svg.querySelectorAll('path')].filter((path) => path.getAttribute('d').length > 0);
      return size.width > 50 && size.height > 20 && shapes.length > 0 && this.drawnMarks > 0;
    }

    point(event) {
      const size = this.svg.getBoundingClientRect();
      const at = (event.clientX - size.left) / size.width * W;
      let best = 0;
      this.x.forEach((x, i) => { if (Math.abs(this.X(x) - at) < Math.abs(this.X(this.x[best]) - at)) best = i; });
      this.leave();
      const x = this.X(this.x[best]);
      this.svg.insertAdjacentHTML('beforeend', `<line class="cursor" x1="${x}" x2="${x}" y1="${TOP}" y2="${H - BOTTOM}"/>`);
      const rows = this.lines.filter((line) => line.visible).map((line) =>
        `<tr><td><i style="background:var(--${line.colour})"></i>${escape(line.name)}</td><td>${figure(line.values[best], this.unit)}</td></tr>`);
      const tip = document.createElement('div');
      tip.className = 'tip';
      tip.innerHTML = `<div>${escape(this.xText(this.x[best]))}</div><table>${rows.join('')}</table>`;
      this.box.append(tip);
      const place = x / W * size.width;
      const right = place > size.width / 2;
      tip.style.top = '44px';
      tip.style.left = right ? `${place - tip.offsetWidth - 4}px` : `${place + 28}px`;
    }

    leave() {
      this.svg.querySelectorAll('.cursor').forEach((line) => line.remove());
      this.box.querySelectorAll('.tip').forEach((tip) => tip.remove());
    }
  }

  // ---- what this run shows
  const column = (name) => series.columns[name] || series.time.map(() => null);
  const line = (name, title, colour, more) => ({ name: title, values: column(name), colour, ...more });
  const over = (name, title, note, unit, lines, more) => new Chart({ name, title, note, unit, x: series.time, lines, ...more });
  const some = (name) => column(name).some((v) => v !== null && v !== 0);
  const every = series.step > 1 ? `each point: ${series.step} s` : '';

  const traffic = document.getElementById('traffic');
  traffic.append(over('rate', 'Rate', `calls a second ${every}`, '1/s', [
    line('rate.intended', 'intended', 'c8', { dashed: true }),
    line(some('rate.achieved') || !some('rate.incoming') ? 'rate.achieved' : 'rate.incoming', some('rate.achieved') || !some('rate.incoming') ? 'achieved' : 'incoming', 'c1', { filled: true }),
    line('rate.successful', 'successful', 'c2'),
    line('rate.failed', 'failed', 'c4'),
  ]).box);
  traffic.append(over('concurrency', 'Concurrency', `calls open ${every}`, '1', [
    line('concurrency.max', 'most', 'c7', { dashed: true }),
    line('concurrency', 'at the end of the second', 'c1', { filled: true }),
  ]).box);
  const palette = ['c2', 'c1', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8'];
  traffic.append(over('codes', 'Responses received', `a second, by method and code ${every}`, '1/s',
    series.codes.map((code, i) => ({ name: code.name, values: code.values, colour: palette[i % palette.length] })), { stacked: true }).box);
  traffic.append(over('trouble', 'Trouble', `a second ${every}`, '1/s', [
    line('retransmissions', 'retransmissions', 'c3'),
    line('unexpected', 'unexpected messages', 'c4'),
    line('session.timed_out', 'INVITEs timed out', 'c5'),
    line('registration.timed_out', 'REGISTERs timed out', 'c6'),
    line('out_of_call', 'messages of no call', 'c8'),
  ]).box);

  const delays = document.getElementById('delays');
  for (const delay of series.delays) {
    delays.append(over(`delay-${delay.name}`, delay.title, `${delay.definition} ${every ? `Each point: the worst of ${series.step} s.` : ''}`, 'us', [
      line(`${delay.name}.p50`, 'p50', 'c1'),
      line(`${delay.name}.p95`, 'p95', 'c2'),
      line(`${delay.name}.p99`, 'p99', 'c3'),
      line(`${delay.name}.p99.9`, 'p99.9', 'c4'),
      line(`${delay.name}.max`, 'max', 'c5', { dashed: true }),
      line(`${delay.name}.intended.p99`, 'p99 from the intended time', 'c8', { dashed: true }),
    ], { canLog: true }).box);
  }
  if (series.distributions.length) {
    const x = series.percents.map((percent) => Math.log10(100 / (100 - percent)));
    const bases = [...new Set(series.distributions.map((one) => one.name.replace('.intended', '')))];
    const text = (v) => `${Number((100 - 100 / 10 ** v).toFixed(3))} %`;
    delays.append(new Chart({
      name: 'distribution', title: 'Distribution over the whole run', note: 'how long the given share of all took at most', unit: 'us', x,
      lines: series.distributions.map((one) => ({ name: one.name, values: one.values, colour: palette[bases.indexOf(one.name.replace('.intended', '')) % palette.length], dashed: one.name.endsWith('.intended') })),
      xText: text, xTicks: [0, 1, 2, 3, 4], canLog: true, log: true,
    }).box);
  }

  const health = document.getElementById('health');
  health.append(over('lag', 'Lag', `how late calls were started, messages read, timers served ${every}`, 'us', [
    line('lag.p50', 'starts p50', 'c1'), line('lag.p99', 'starts p99', 'c3'), line('lag.max', 'starts max', 'c5', { dashed: true }),
    line('lag.receive.p99', 'reading p99', 'c2'), line('lag.timer.p99', 'timers p99', 'c6'), line('lag.send.p99', 'sending p99', 'c7'),
    line('stall.max', 'stall', 'c4'),
  ], { canLog: true }).box);
  report.generators.forEach((generator, g) => {
    const samples = generator.samples.filter((sample) => sample.interval > 0);
    const lines = generator.threads.slice(0, 5).map((thread, i) => ({
      name: `${thread.name} (${thread.id})`,
      values: samples.map((sample) => (sample.threads.filter((used) => used.id === thread.id).map((used) => used.cpu)[0] || 0) / sample.interval * 100),
      colour: palette[(i + 1) % palette.length],
    }));
    const cores = Math.max(0, ...samples.map((sample) => sample.cores.length));
    if (cores) {
      lines.push({
        name: `all ${cores} cores, all programs`, colour: 'c8', dashed: true,
        values: samples.map((sample) => sample.cores.reduce((sum, core) => sum + core, 0) / cores * 100),
      });
    }
    const name = report.generators.length > 1 ? ` of ${generator.heading.generator}` : '';
    health.append(new Chart({
      name: g ? `cpu-${g}` : 'cpu', title: `CPU of the generator${name}`, note: 'share of a core, by thread', unit: '%',
      x: samples.map((sample) => sample.second), lines,
    }).box);
  });
  health.append(over('losses', 'Losses in the generator', `a second ${every}`, '1/s', [
    line('socket_drops', 'datagrams dropped by its kernel', 'c4'), line('send_failures', 'messages not sent', 'c5'), line('stalls', 'stalls', 'c3'),
  ]).box);

  // ---- tables
  const put = (id, html) => { document.getElementById(id).innerHTML = html; };
  const percentiles = ['mean', 'p50', 'p90', 'p95', 'p99', 'p99.9', 'p99.99', 'max'];
  const rows = [...Object.entries(report.delays), ...Object.entries(report.timers).map(([name, delay]) => [`timer.${name}`, delay])]
    .filter(([, delay]) => delay.count > 0)
    .map(([name, delay]) => `<tr><td title="${escape(delay.title)}">${escape(name)}</td><td class="left">${escape(delay.title)}</td><td>${show['1'](delay.count)}</td>
      ${percentiles.map((p) => `<td>${figure(delay[p], 'us')}</td>`).join('')}</tr>`);
  put('delay-table', `<table><tr><th>measure</th><th class="left"></th><th>count</th>${percentiles.map((p) => `<th>${p}</th>`).join('')}</tr>${rows.join('')}</table>`);
  const after = (generator, second) => `${second - Math.floor(generator.heading.started / 1e6)} s`;
  const windows = report.generators.flatMap((generator) => generator.windows.map((window) =>
    `<tr><td>${escape(generator.heading.generator)}</td><td>${after(generator, window.from)}</td><td>${after(generator, window.until)}</td>
      <td class="left">${window.reasons.length ? '<span class="missed">not the server\u2019s</span>' : window.active ? '<span class="met">the server\u2019s</span>' : 'no calls'}</td>
      <td class="left">${window.reasons.map((reason) => escape(`${reason.threshold}: ${reason.sentence}`)).join('<br>')}</td></tr>`));
  put('window-table', `<table><tr><th>window of</th><th>from</th><th>to</th><th class="left">figures</th><th class="left">why</th></tr>${windows.join('')}</table>`);
  const ratios = Object.entries(report.ratios).filter(([, ratio]) => ratio.value !== null);
  put('ratio-table', `<table><tr><th>measure</th><th class="left"></th><th>value</th><th class="left">source</th></tr>${ratios.map(([name, ratio]) =>
    `<tr><td>${escape(name)}</td><td class="left">${escape(ratio.title)}</td><td>${figure(ratio.value, '%')}</td><td class="left">${escape(ratio.source)}</td></tr>`).join('')}</table>`);
  const counters = Object.entries({ ...report.counters, ...Object.fromEntries(Object.entries(report.failures).map(([cause, n]) => [`calls.failed.${cause}`, n])) })
    .filter(([, n]) => n > 0);
  put('counter-table', `<table><tr><th>counter</th><th>count</th></tr>${counters.map(([name, n]) =>
    `<tr><td>${escape(name)}</td><td>${name.startsWith('bytes') ? show.B(n) : trim(n, 0)}</td></tr>`).join('')}</table>`);
  put('code-table', `<table><tr><th>method</th><th>code</th><th class="left">direction</th><th>count</th></tr>${report.responses.map((r) =>
    `<tr><td>${escape(r.method)}</td><td>${r.code || 'other'}</td><td class="left">${r.direction}</td><td>${trim(r.count, 0)}</td></tr>`).join('')}</table>`);
  const settings = report.generators.flatMap((generator) => [
    ['generator', generator.heading.generator], ['program', generator.heading.program],
    ...Object.entries(generator.heading.settings), ['seed', generator.heading.seed],
    ...generator.receive_buffers.map((b) => [`receive buffer of ${b.socket}`, `${show.B(b.got)} of ${show.B(b.asked)} asked`]),
    ['memory', generator.resident ? show.B(generator.resident) : null],
  ]).filter(([, value]) => value !== null && value !== '');
  put('setting-table', `<table><tr><th>setting</th><th class="left">value</th></tr>${settings.map(([name, value]) =>
    `<tr><td>${escape(name)}</td><td class="left">${escape(value)}</td></tr>`).join('')}</table>`);

  // ---- draw, and say what was drawn
  charts.forEach((chart) => {
    try { chart.draw(); } catch (error) { failed(`${chart.name}: ${error.message}`); }
    // What has no line to draw says so in words; that is a picture too, but not a chart.
    chart.box.dataset.state = chart.drawn() ? 'drawn' : chart.lines.length ? 'blank' : 'empty';
  });
  root.dataset.charts = charts.map((chart) => `${chart.name}=${chart.box.dataset.state}`).join('|');
  root.dataset.requests = performance.getEntriesByType('resource').length;
  root.dataset.ready = 'yes';
})();
