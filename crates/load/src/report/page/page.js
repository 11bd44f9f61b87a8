// The charts and tables of a run, from the two JSON blocks of the page. `crates/report` has the parts that stand around this one.
const report = JSON.parse(document.getElementById('report').textContent);
const series = JSON.parse(document.getElementById('series').textContent);

// ---- what this run shows
const column = (name) => series.columns[name] || series.time.map(() => null);
const line = (name, title, colour, more) => ({ name: title, values: column(name), colour, ...more });
const over = (name, title, note, unit, lines, more) => new Chart({ name, title, note, unit, x: series.time, lines, shaded: series.warm_until, ...more });
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
    x: samples.map((sample) => sample.second), lines, shaded: series.warm_until,
  }).box);
});
health.append(over('losses', 'Losses in the generator', `a second ${every}`, '1/s', [
  line('socket_drops', 'datagrams dropped by its kernel', 'c4'), line('send_failures', 'messages not sent', 'c5'), line('stalls', 'stalls', 'c3'),
]).box);

// ---- tables
const put = (id, html) => { document.getElementById(id).innerHTML = html; };
const measured = [...Object.entries(report.delays), ...Object.entries(report.timers).map(([name, delay]) => [`timer.${name}`, delay])]
  .filter(([, delay]) => delay.count > 0);
const figures = (delays, statistics, unit) => `<table><tr><th>measure</th><th class="left"></th><th>count</th>${statistics.map((p) => `<th>${p}</th>`).join('')}</tr>${
  delays.map(([name, delay]) => `<tr><td title="${escape(delay.title)}">${escape(name)}</td><td class="left">${escape(delay.title)}</td><td>${show['1'](delay.count)}</td>
    ${statistics.map((p) => `<td>${figure(delay[p], unit)}</td>`).join('')}</tr>`).join('')}</table>`;
put('delay-table', figures(measured.filter(([, delay]) => delay.unit === 'us'), ['mean', 'p50', 'p90', 'p95', 'p99', 'p99.9', 'p99.99', 'max'], 'us'));
// The worst streams have the lowest scores.
const scores = measured.filter(([, delay]) => delay.unit === 'score');
put('score-table', scores.length ? figures(scores, ['mean', 'p50', 'p10', 'p5', 'p1', 'p0.1', 'p0.01', 'min'], '1') : '');
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
