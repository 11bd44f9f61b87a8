// ---- a chart: lines, stacked areas, bars or points over time, numbers or categories
const W = 640, H = 250, LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 26;
// Space of an axis title, and the width of a letter of the axes.
const TITLE = 18, LETTER = 6.4;
const charts = [];

function ticks(low, high, count) {
  const span = high - low || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const out = [];
  // Adding 0 makes -0, which would be shown as such, 0.
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) out.push(i * step + 0);
  return out;
}

const shorten = (text, length) => text.length > length ? `${text.slice(0, length - 1)}…` : text;
const at = (v) => v.toFixed(1);

class Chart {
  // options: name, title, note, unit, x (numbers), lines [{ name, values, colour, dashed, filled }], stacked, log, canLog, xText, xTicks.
  // A line may have a form ('bars', 'points'), intervals [[low, high]], invalid [bool] and dots; one that is joined has no gaps. Figures also have
  // categories (names of x = 0, 1, ...), xLog, xTick, xTitle, yTitle, inset (room at both ends of x), published [{ name, colour, points:
  // [{ x, y }], sign }] and empty, the words of a chart without data. The picture is shaded up to the x `shaded` (a warm-up).
  constructor(options) {
    Object.assign(this, { stacked: false, inset: 0, xText: clock, published: [], empty: 'nothing was measured' }, options);
    this.lines = this.lines.filter((line) => line.values.some((v) => v !== null));
    this.entries = [...this.lines, ...this.published];
    this.entries.forEach((entry) => { entry.visible = true; });
    // Where the worst is far from the usual, only a log scale shows both.
    if (this.canLog && this.log === undefined) {
      const positive = (values) => values.filter((v) => v > 0).sort((a, b) => a - b);
      const usual = this.lines.length ? positive(this.lines[0].values) : [];
      const all = positive(this.lines.flatMap((line) => line.values));
      this.log = usual.length > 0 && all[all.length - 1] > 25 * usual[usual.length >> 1];
    }
    const band = (W - LEFT - RIGHT) / this.x.length;
    const longest = Math.min(24, Math.max(0, ...(this.categories || []).map((name) => name.length)));
    this.slanted = longest * LETTER > band;
    this.top = TOP + (this.yTitle ? TITLE : 0);
    this.bottom = BOTTOM + (this.slanted ? longest * LETTER * 0.5 : 0);
    this.base = H + this.top - TOP - BOTTOM;
    this.height = this.base + this.bottom + (this.xTitle ? TITLE : 0);
    this.build();
    if (charts.some((other) => other.name === this.name)) failed(`two charts have the name ${this.name}`);
    charts.push(this);
  }

  // The elements that stay when the chart is drawn again.
  build() {
    this.box = document.createElement('figure');
    this.box.dataset.name = this.name;
    this.box.innerHTML = `<figcaption><span>${escape(this.title)}</span></figcaption><p class="note">${escape(this.note || '')}</p>
      <svg viewBox="0 0 ${W} ${this.height}" role="img" tabindex="0" aria-label="${escape(this.title)}"></svg><div class="legend"></div>`;
    this.svg = this.box.querySelector('svg');
    if (this.canLog) {
      const button = this.button(this.log ? 'linear scale' : 'log scale', () => {
        this.log = !this.log;
        button.textContent = this.log ? 'linear scale' : 'log scale';
        this.draw();
      });
    }
    const legend = this.box.querySelector('.legend');
    for (const entry of this.entries) {
      const button = document.createElement('button');
      button.innerHTML = (entry.sign ? `<b style="color:var(--${entry.colour})">${entry.sign}</b> `
        : `<i style="border-top:3px ${entry.dashed ? 'dotted' : 'solid'} var(--${entry.colour})"></i>`) + escape(entry.name);
      button.setAttribute('aria-pressed', 'true');
      button.addEventListener('click', () => {
        entry.visible = !entry.visible;
        button.setAttribute('aria-pressed', String(entry.visible));
        this.draw();
      });
      legend.append(button);
    }
    this.svg.addEventListener('pointermove', (event) => this.point(event));
    this.svg.addEventListener('pointerleave', () => this.leave());
    this.svg.addEventListener('keydown', (event) => this.key(event));
    this.svg.addEventListener('blur', () => this.leave());
  }

  button(text, action) {
    const button = document.createElement('button');
    button.textContent = text;
    button.addEventListener('click', action);
    this.box.querySelector('figcaption').append(button);
    return button;
  }

  visible(entries) { return entries.filter((entry) => entry.visible); }

  draw() {
    const lines = this.visible(this.lines), published = this.visible(this.published);
    let sums = new Array(this.x.length).fill(0);
    const shapes = lines.map((line) => {
      if (!this.stacked) return { line, low: null, high: line.values };
      const low = sums;
      sums = sums.map((sum, i) => sum + (line.values[i] || 0));
      return { line, low, high: sums };
    });
    const intervals = lines.flatMap((line) => line.intervals || []).filter((interval) => interval).flat();
    const marked = published.flatMap((group) => group.points.map((point) => point.y));
    this.scale([...shapes.flatMap((shape) => shape.high).filter((v) => v !== null), ...intervals, ...marked]);
    const bars = lines.filter((line) => line.form === 'bars');
    let html = this.grid();
    for (const shape of shapes) {
      html += shape.line.form === 'bars' ? this.bars(shape.line, bars.indexOf(shape.line), bars.length)
        : shape.line.form === 'points' ? this.dots(shape.line) : this.curve(shape);
    }
    html += published.map((group) => this.marks(group)).join('');
    if (!lines.length && !published.length) html += `<text class="axis" x="${W / 2}" y="${H / 2}" text-anchor="middle">${escape(this.empty)}</text>`;
    this.svg.innerHTML = html;
  }

  // The places of values, so that all of these are within the picture.
  scale(all) {
    const positive = all.filter((v) => v > 0);
    const log = this.log && positive.length > 0;
    let low = log ? 0 : Math.min(0, ...all), high = Math.max(...all, 0) || (low ? 0 : 1);
    if (log) {
      low = 10 ** Math.floor(Math.log10(Math.min(...positive)));
      high = Math.max(10 ** Math.ceil(Math.log10(high)), low * 10);
    } else {
      const room = 0.06 * (high - low);
      high += high > 0 ? room : 0;
      low -= low < 0 ? room : 0;
    }
    const part = (v, low, high, log) => log ? Math.log(Math.max(v, low) / low) / Math.log(high / low) : (v - low) / (high - low);
    const n = this.x.length, first = this.x[0], last = this.x[n - 1], width = W - LEFT - RIGHT - 2 * this.inset;
    this.X = (v) => LEFT + this.inset + width * (this.categories ? (v + 0.5) / this.categories.length
      : n < 2 || last === first ? 0.5 : part(v, first, last, this.xLog));
    this.Y = (v) => this.base - part(v, low, high, log) * (this.base - this.top);
    this.levels = log ? Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, i) => low * 10 ** i) : ticks(low, high, 4);
    this.zero = this.Y(log ? low : 0);
  }

  grid() {
    const { X, Y, base, zero } = this, n = this.x.length;
    let html = '';
    for (const v of this.levels) {
      html += `<line class="grid" x1="${LEFT}" x2="${W - RIGHT}" y1="${at(Y(v))}" y2="${at(Y(v))}"/>
        <text class="axis" x="${LEFT - 6}" y="${at(Y(v) + 4)}" text-anchor="end">${tick(v, this.unit)}</text>`;
    }
    const marks = this.xTicks || (n < 2 ? [this.x[0]] : ticks(0, this.x[n - 1] - this.x[0], 6).map((v) => v + this.x[0]));
    for (const v of marks.filter((v) => v !== undefined)) {
      const x = at(X(v)), text = escape(shorten((this.xTick || this.xText)(v), 24));
      html += this.slanted
        ? `<text class="axis" x="${x}" y="${base + 14}" text-anchor="end" transform="rotate(-30 ${x} ${base + 14})">${text}</text>`
        : `<text class="axis" x="${x}" y="${base + 19}" text-anchor="${X(v) > W - 40 && !this.categories ? 'end' : 'middle'}">${text}</text>`;
    }
    if (n > 1 && this.shaded > this.x[0]) {
      const width = X(Math.min(this.shaded, this.x[n - 1])) - LEFT;
      html += `<rect class="warm" x="${LEFT}" y="${at(this.top)}" width="${at(width)}" height="${at(base - this.top)}"><title>warm-up</title></rect>`;
    }
    html += `<line class="base" x1="${LEFT}" x2="${W - RIGHT}" y1="${at(zero)}" y2="${at(zero)}"/>`;
    if (this.yTitle) html += `<text class="axis" x="${LEFT}" y="13">${escape(this.yTitle)}</text>`;
    if (this.xTitle) html += `<text class="axis" x="${(W + LEFT - RIGHT) / 2}" y="${at(this.height - 6)}" text-anchor="middle">${escape(this.xTitle)}</text>`;
    return html;
  }

  curve({ line, low, high }) {
    const { X, Y } = this, n = this.x.length, colour = `var(--${line.colour})`;
    let html = '', path = '', pen = false;
    for (let i = 0; i < n; i++) {
      if (high[i] === null) { pen = pen && line.joined; continue; }
      path += `${pen ? 'L' : 'M'}${at(X(this.x[i]))} ${at(Y(high[i]))}`;
      const alone = (i === 0 || high[i - 1] === null) && (i === n - 1 || high[i + 1] === null);
      if (alone && !line.dots) html += `<circle cx="${at(X(this.x[i]))}" cy="${at(Y(high[i]))}" r="2.5" fill="${colour}"/>`;
      pen = true;
    }
    if (low) {
      let area = path;
      for (let i = n - 1; i >= 0; i--) area += `L${at(X(this.x[i]))} ${at(Y(low[i]))}`;
      html += `<path d="${area}Z" fill="${colour}" fill-opacity="0.55" stroke="none"/>`;
    } else if (line.filled && n > 1) {
      html += `<path d="${path}L${at(X(this.x[n - 1]))} ${this.base}L${at(X(this.x[0]))} ${this.base}Z" fill="${colour}" fill-opacity="0.12" stroke="none"/>`;
    }
    html += `<path class="curve" d="${path}" fill="none" stroke="${colour}" stroke-width="${line.dashed ? 1.6 : 1.8}" stroke-linejoin="round"${line.dashed ? ' stroke-dasharray="5 4"' : ''}/>`;
    return html + (line.dots ? this.dots(line) : '');
  }

  dots(line) {
    return line.values.map((v, i) => v === null ? '' : `${this.whisker(line, i, this.X(this.x[i]))}
      <circle class="dot${line.invalid[i] ? ' invalid' : ''}" cx="${at(this.X(this.x[i]))}" cy="${at(this.Y(v))}" r="3"
        fill="var(--${line.invalid[i] ? 'card' : line.colour})" stroke="var(--${line.colour})"/>`).join('');
  }

  // `place` of `count` bars that stand side by side in a category.
  bars(line, place, count) {
    const band = (W - LEFT - RIGHT) / this.x.length, width = Math.min(60, band * 0.76 / count);
    return line.values.map((v, i) => {
      if (v === null) return '';
      const x = this.X(this.x[i]) + (place - count / 2) * width, top = Math.min(this.Y(v), this.zero);
      return `<rect class="bar${line.invalid[i] ? ' invalid' : ''}" x="${at(x + 0.5)}" y="${at(top)}" width="${at(width - 1)}" height="${at(Math.max(Math.abs(this.Y(v) - this.zero), 0.5))}"
        fill="var(--${line.colour})" fill-opacity="${line.invalid[i] ? 0.25 : 0.75}"/>${this.whisker(line, i, x + width / 2)}`;
    }).join('');
  }

  whisker(line, i, x) {
    const interval = line.intervals && line.intervals[i];
    if (!interval) return '';
    const [low, high] = interval.map((v) => at(this.Y(v)));
    return `<path class="interval" d="M${at(x - 4)} ${high}H${at(x + 4)}M${at(x)} ${high}V${low}M${at(x - 4)} ${low}H${at(x + 4)}" fill="none"
      stroke="${line.form === 'bars' ? 'var(--ink)' : `var(--${line.colour})`}" stroke-width="1.4"/>`;
  }

  // Values that others published: diamonds; one that holds for every x is a line from side to side.
  marks(group) {
    return group.points.map(({ x, y }) => {
      const shape = x === null ? `M${LEFT} ${at(this.Y(y))}H${W - RIGHT}` : `M${at(this.X(x))} ${at(this.Y(y) - 6)}l6 6l-6 6l-6-6Z`;
      return `<path class="published" d="${shape}" fill="${x === null ? 'none' : 'var(--card)'}" stroke="var(--${group.colour})" stroke-width="2"${x === null ? ' stroke-dasharray="2 5"' : ''}/>`;
    }).join('');
  }

  // Something is on the picture: a shape with points, and a size on the screen.
  drawn() {
    const size = this.svg.getBoundingClientRect();
    const shapes = [...this.svg.querySelectorAll('path')].filter((path) => path.getAttribute('d').length > 0);
    const marks = shapes.length + this.svg.querySelectorAll('.bar, .dot').length;
    return size.width > 50 && size.height > 20 && marks > 0 && !this.svg.innerHTML.includes('NaN');
  }

  // What the picture has; a test counts it.
  counts() {
    const kinds = { lines: '.curve', bars: '.bar', points: '.dot', intervals: '.interval', published: '.published', invalid: '.invalid' };
    return Object.entries(kinds).map(([kind, shape]) => `${kind}:${this.svg.querySelectorAll(shape).length}`).join(' ');
  }

  point(event) {
    const size = this.svg.getBoundingClientRect();
    const place = (event.clientX - size.left) / size.width * W;
    let best = 0;
    this.x.forEach((x, i) => { if (Math.abs(this.X(x) - place) < Math.abs(this.X(this.x[best]) - place)) best = i; });
    this.tell(best);
  }

  // The arrow keys do what a pointer does.
  key(event) {
    const last = this.x.length - 1, now = this.told;
    const next = { ArrowRight: now === undefined ? 0 : now + 1, ArrowLeft: now === undefined ? last : now - 1, Home: 0, End: last }[event.key];
    if (event.key === 'Escape') this.leave();
    if (next === undefined) return;
    event.preventDefault();
    this.tell(Math.max(0, Math.min(last, next)));
  }

  // Shows the values at one place.
  tell(best) {
    this.leave();
    if (!this.entries.length || best < 0) return;
    this.told = best;
    const at = this.x[best], x = this.X(at);
    this.svg.insertAdjacentHTML('beforeend', `<line class="cursor" x1="${x}" x2="${x}" y1="${this.top}" y2="${this.base}"/>`);
    const row = (entry, text) => `<tr><td><i style="background:var(--${entry.colour})"></i>${escape(entry.name)}</td><td>${text}</td></tr>`;
    const rows = this.visible(this.lines).filter((line) => !line.joined || line.values[best] !== null).map((line) => {
      const interval = line.intervals && line.intervals[best];
      return row(line, figure(line.values[best], this.unit) + (interval ? ` (${interval.map((v) => figure(v, this.unit)).join(' to ')})` : '')
        + (line.invalid && line.invalid[best] ? ', trial not valid' : ''));
    });
    for (const group of this.visible(this.published)) {
      rows.push(...group.points.filter((point) => point.x === null || point.x === at).map((point) => row(group, figure(point.y, this.unit))));
    }
    const tip = document.createElement('div');
    tip.className = 'tip';
    tip.setAttribute('role', 'status');
    tip.innerHTML = `<div>${escape(this.xText(at))}</div><table>${rows.join('')}</table>`;
    this.box.append(tip);
    const size = this.svg.getBoundingClientRect();
    const place = x / W * size.width;
    const right = place > size.width / 2;
    tip.style.top = '44px';
    tip.style.left = right ? `${place - tip.offsetWidth - 4}px` : `${place + 28}px`;
  }

  leave() {
    this.told = undefined;
    this.svg.querySelectorAll('.cursor').forEach((line) => line.remove());
    this.box.querySelectorAll('.tip').forEach((tip) => tip.remove());
  }
}
