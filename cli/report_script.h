// The script of a report: hover shows the numbers under the pointer, a drag zooms in, a double click (or the button) goes
// back, a click on a name in the legend hides its line. It is inline, asks nothing of the network, and the page is complete
// without it: plots are drawn by plot.cc, and the script moves what is there.
#pragma once

namespace ttr::cli {

constexpr const char* report_css = R"css(
.plot { touch-action: pan-y; } figure { position: relative; }
.tip { position: absolute; pointer-events: none; display: none; z-index: 2; background: var(--paper); color: var(--ink);
  border: 1px solid var(--edge); border-radius: 6px; padding: 6px 9px; font-size: 12.5px; line-height: 1.45;
  font-variant-numeric: tabular-nums; box-shadow: 0 2px 10px rgba(0, 0, 0, 0.18); max-width: 280px; }
.tip b { font-weight: 600; } .tip i { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 6px; }
.tip span { float: right; margin-left: 14px; }
.cross { stroke: var(--soft); stroke-width: 1; pointer-events: none; } .chosen { fill: var(--h0); fill-opacity: 0.15; }
.plot .entry { cursor: pointer; } .plot .off { opacity: 0.3; }
.reset { display: none; position: absolute; top: 6px; right: 8px; font: inherit; font-size: 13px; color: var(--ink);
  background: var(--paper); border: 1px solid var(--edge); border-radius: 6px; padding: 3px 10px; cursor: pointer; }
.zoomed .reset { display: block; }
@media print { .reset, .tip { display: none !important; } }
)css";

constexpr const char* report_script = R"js(
(function () {
  'use strict';
  var NS = 'http://www.w3.org/2000/svg';
  function short(v) {
    if (v === null || v === undefined || !isFinite(v)) return '-';
    var a = Math.abs(v);
    return a !== 0 && (a < 1e-3 || a >= 1e7) ? v.toExponential(3) : String(+v.toPrecision(6));
  }
  function linearTicks(low, high, about) {
    var raw = (high - low) / Math.max(about, 1), power = Math.pow(10, Math.floor(Math.log10(raw))), step = power;
    [1, 2, 5, 10].some(function (f) { step = f * power; return step >= raw * 0.999; });
    var ticks = [];
    for (var k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && ticks.length < 50; k++) ticks.push(k * step);
    return ticks;
  }
  function logTicks(low, high) {
    var decades = Math.log10(high / low), ticks = [];
    if (decades < 0.7) return linearTicks(low, high, 4);
    var stride = Math.max(1, Math.ceil(decades / 8));
    for (var e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += stride)
      [1, 2, 5].forEach(function (m) {
        var t = m * Math.pow(10, e);
        if ((m === 1 || decades <= 3.3) && t >= low * 0.999 && t <= high * 1.001) ticks.push(t);
      });
    return ticks;
  }
  function make(name, attributes, parent) {
    var e = document.createElementNS(NS, name);
    Object.keys(attributes).forEach(function (k) { e.setAttribute(k, attributes[k]); });
    parent.appendChild(e);
    return e;
  }
  function attach(figure, svg, data, tip) {
    var box = svg.dataset.box.split(' ').map(Number), whole = svg.dataset.view.split(' ').map(Number);
    var left = box[0], top = box[1], w = box[2], h = box[3], view = whole.slice(), hidden = {}, start = null;
    var logX = svg.dataset.logX === '1', logY = svg.dataset.logY === '1';
    function part(v, a, b, log) { return log ? Math.log(v / a) / Math.log(b / a) : (v - a) / (b - a); }
    function px(x) { return left + part(x, view[0], view[1], logX) * w; }
    function py(y) {
      if (logY && !(y > 0)) return top + h + 20;
      return top + (1 - Math.min(1.05, Math.max(-0.05, part(y, view[2], view[3], logY)))) * h;
    }
    function xAt(p) {
      var s = (p - left) / w;
      return logX ? view[0] * Math.pow(view[1] / view[0], s) : view[0] + s * (view[1] - view[0]);
    }
    function finite(v) { return v !== null && isFinite(v) && (!logY || v > 0); }
    function lineTo(xs, ys) {
      var d = '', down = false;
      for (var i = 0; i < xs.length; i++) {
        if (!finite(ys[i])) { down = false; continue; }
        d += (down ? 'L' : 'M') + px(xs[i]).toFixed(1) + ' ' + py(ys[i]).toFixed(1);
        down = true;
      }
      return d;
    }
    function areaOf(b) {
      var d = '', i = 0, n = b.x.length;
      while (i < n) {
        var end = i, j;
        while (end < n && finite(b.low[end]) && finite(b.high[end])) end++;
        for (j = i; j < end; j++) d += (j === i ? 'M' : 'L') + px(b.x[j]).toFixed(1) + ' ' + py(b.high[j]).toFixed(1);
        for (j = end - 1; j >= i; j--) d += 'L' + px(b.x[j]).toFixed(1) + ' ' + py(b.low[j]).toFixed(1);
        if (end > i) d += 'Z';
        i = end + 1;
      }
      return d;
    }
    function draw() {
      svg.querySelectorAll('[data-line]').forEach(function (e) {
        var line = data.lines[+e.dataset.line];
        e.style.display = hidden[e.dataset.line] ? 'none' : '';
        if (e.tagName === 'circle') {
          e.setAttribute('cx', px(line.x[+e.dataset.i]).toFixed(1));
          e.setAttribute('cy', py(line.y[+e.dataset.i]).toFixed(1));
        } else e.setAttribute('d', lineTo(line.x, line.y));
      });
      svg.querySelectorAll('[data-band]').forEach(function (e) { e.setAttribute('d', areaOf(data.bands[+e.dataset.band])); });
      svg.querySelectorAll('[data-mark]').forEach(function (e) {
        var x = px(data.marks[+e.dataset.mark].x), out = x < left || x > left + w;
        e.style.display = out ? 'none' : '';
        if (e.tagName === 'text') e.setAttribute('x', (x + 5).toFixed(1));
        else { e.setAttribute('x1', x.toFixed(1)); e.setAttribute('x2', x.toFixed(1)); }
      });
      var ticks = svg.querySelector('.ticks');
      ticks.textContent = '';
      (logX ? logTicks(view[0], view[1]) : linearTicks(view[0], view[1], Math.max(2, w / 90))).forEach(function (x) {
        make('line', { 'class': 'grid', x1: px(x), x2: px(x), y1: top, y2: top + h }, ticks);
        make('text', { x: px(x), y: top + h + 17, 'text-anchor': 'middle' }, ticks).textContent = short(x);
      });
      (logY ? logTicks(view[2], view[3]) : linearTicks(view[2], view[3], Math.max(2, h / 55))).forEach(function (y) {
        make('line', { 'class': 'grid', x1: left, x2: left + w, y1: py(y), y2: py(y) }, ticks);
        make('text', { x: left - 7, y: py(y) + 4, 'text-anchor': 'end' }, ticks).textContent = short(y);
      });
    }
    // The y range of what is in sight, but never beyond what the whole plot showed.
    function fit() {
      var low = Infinity, high = -Infinity;
      data.lines.forEach(function (line, l) {
        if (hidden[l]) return;
        line.x.forEach(function (x, i) {
          var y = line.y[i];
          if (x < view[0] || x > view[1] || !finite(y)) return;
          low = Math.min(low, y), high = Math.max(high, y);
        });
      });
      if (!(high >= low)) return;
      if (logY) low /= 1.2, high *= 1.2;
      else { var margin = 0.06 * (high - low) || Math.abs(high) * 0.1 || 0.5; low -= margin; high += margin; }
      view[2] = Math.max(low, whole[2]);
      view[3] = Math.min(high, whole[3]);
      if (!(view[3] > view[2])) view[2] = whole[2], view[3] = whole[3];
    }
    function reset() { view = whole.slice(); figure.classList.remove('zoomed'); draw(); }
    var cross = make('line', { 'class': 'cross', y1: top, y2: top + h, visibility: 'hidden' }, svg);
    var chosen = make('rect', { 'class': 'chosen', y: top, height: h, width: 0, visibility: 'hidden' }, svg);
    function place(event) {
      var r = svg.getBoundingClientRect();
      return { x: (event.clientX - r.left) * svg.viewBox.baseVal.width / r.width,
               y: (event.clientY - r.top) * svg.viewBox.baseVal.height / r.height };
    }
    function hide() { tip.style.display = 'none'; cross.setAttribute('visibility', 'hidden'); }
    function hover(event, p) {
      if (p.x < left || p.x > left + w || p.y < top || p.y > top + h) return hide();
      var x = xAt(p.x), best = null;
      data.lines.forEach(function (line, l) {
        if (!hidden[l]) line.x.forEach(function (at) {
          if (at >= view[0] && at <= view[1] && (best === null || Math.abs(at - x) < Math.abs(best - x))) best = at;
        });
      });
      if (best === null) return hide();
      cross.setAttribute('x1', px(best)), cross.setAttribute('x2', px(best)), cross.setAttribute('visibility', 'visible');
      tip.textContent = '';
      var head = document.createElement('b');
      head.textContent = data.x + ' ' + short(best);
      tip.appendChild(head);
      var rows = [];
      data.lines.forEach(function (line, l) {
        if (hidden[l]) return;
        var i = line.x.indexOf(best);
        if (i >= 0 && line.y[i] !== null) rows.push({ line: line, y: line.y[i] });
      });
      if (data.sorted) rows.sort(function (a, b) { return b.y - a.y; });
      rows.forEach(function (row) {
        var div = document.createElement('div'), dot = document.createElement('i'), number = document.createElement('span');
        dot.style.background = row.line.hue < 0 ? 'var(--hn)' : 'var(--h' + row.line.hue + ')';
        number.textContent = short(row.y);
        div.appendChild(number), div.appendChild(dot), div.appendChild(document.createTextNode(row.line.label));
        tip.appendChild(div);
      });
      tip.style.display = 'block';
      var frame = figure.getBoundingClientRect(), at = event.clientX - frame.left;
      var beside = at + 16 + tip.offsetWidth > frame.width ? at - 16 - tip.offsetWidth : at + 16;
      tip.style.left = Math.max(0, Math.min(beside, frame.width - tip.offsetWidth)) + 'px';
      tip.style.top = Math.max(0, event.clientY - frame.top - tip.offsetHeight / 2) + 'px';
    }
    svg.addEventListener('pointermove', function (event) {
      var p = place(event);
      if (start === null) return hover(event, p);
      var a = Math.max(left, Math.min(start, p.x)), b = Math.min(left + w, Math.max(start, p.x));
      chosen.setAttribute('x', a), chosen.setAttribute('width', Math.max(0, b - a)), chosen.setAttribute('visibility', 'visible');
    });
    svg.addEventListener('pointerdown', function (event) {
      var p = place(event);
      if (event.button !== 0 || p.x < left || p.x > left + w || p.y < top || p.y > top + h) return;
      start = p.x;
      if (event.pointerType !== 'touch') svg.setPointerCapture(event.pointerId);
      hide();
    });
    svg.addEventListener('pointerup', function (event) {
      if (start === null) return;
      var end = place(event).x, a = xAt(Math.max(left, Math.min(start, end))), b = xAt(Math.min(left + w, Math.max(start, end)));
      var far = Math.abs(end - start) > 8;
      start = null, chosen.setAttribute('visibility', 'hidden');
      if (!far) return hover(event, place(event));
      view[0] = a, view[1] = b;
      fit(), draw(), figure.classList.add('zoomed');
    });
    svg.addEventListener('pointercancel', function () { start = null, chosen.setAttribute('visibility', 'hidden'), hide(); });
    svg.addEventListener('pointerleave', function () { if (start === null) hide(); });
    svg.addEventListener('dblclick', reset);
    figure.querySelector('.reset').addEventListener('click', reset);
    svg.querySelectorAll('.entry').forEach(function (entry) {
      entry.addEventListener('click', function () {
        var l = entry.dataset.entry;
        hidden[l] = !hidden[l];
        entry.classList.toggle('off', hidden[l]);
        draw();
      });
    });
  }
  document.querySelectorAll('figure').forEach(function (figure) {
    var source = figure.querySelector('script[type="application/json"]');
    if (!source) return;
    var data = JSON.parse(source.textContent), tip = document.createElement('div');
    tip.className = 'tip';
    figure.appendChild(tip);
    figure.querySelectorAll('svg').forEach(function (svg) { attach(figure, svg, data, tip); });
  });
})();
)js";

}  // namespace ttr::cli
