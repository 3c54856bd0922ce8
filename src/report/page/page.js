'use strict';
// Tables sort by a click on a heading; the page says everything without this script too.
document.querySelectorAll('th[data-sort]').forEach(function (head) {
  head.addEventListener('click', function () {
    var body = head.closest('table').tBodies[0], column = head.cellIndex, number = head.dataset.sort === 'number';
    var up = head.dataset.up = head.dataset.up === '1' ? '0' : '1';
    var key = function (row) {
      var text = row.cells[column].textContent;
      return number ? parseFloat(text) || 0 : text;
    };
    Array.from(body.rows).sort(function (a, b) {
      var x = key(a), y = key(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (up === '1' ? 1 : -1);
    }).forEach(function (row) { body.appendChild(row); });
  });
});
// The value under the pointer, from the marks of a chart.
document.querySelectorAll('.charts svg').forEach(function (svg) {
  var tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  svg.parentNode.appendChild(tip);
  svg.addEventListener('pointermove', function (event) {
    var nearest = null, least = 30 * 30;
    svg.querySelectorAll('circle').forEach(function (mark) {
      var box = mark.getBoundingClientRect();
      var dx = box.x + box.width / 2 - event.clientX, dy = box.y + box.height / 2 - event.clientY;
      if (dx * dx + dy * dy < least) {
        least = dx * dx + dy * dy;
        nearest = mark;
      }
    });
    tip.hidden = !nearest;
    if (!nearest) return;
    tip.textContent = nearest.textContent;
    var panel = svg.parentNode.getBoundingClientRect(), at = nearest.getBoundingClientRect();
    tip.style.top = at.y - panel.y - 34 + 'px';
    tip.style.left = Math.max(4, Math.min(at.x - panel.x - tip.offsetWidth / 2, panel.width - tip.offsetWidth - 4)) + 'px';
  });
  svg.addEventListener('pointerleave', function () { tip.hidden = true; });
});
