/**
 * The report's only script, which plays the races. Without it they all show their final state. It
 * makes no requests and stores nothing.
 *
 * A race starts only on the reader's command, so nothing moves unasked.
 */
export const SCRIPT = `
for (const race of document.querySelectorAll('.race')) {
  const length = Number(race.dataset.seconds);
  const [play, restart, slider] = race.querySelectorAll('button, input');
  const lanes = [...race.querySelectorAll('.lane')].map((lane) => ({
    clock: lane.querySelector('.clock'),
    count: lane.querySelector('.count'),
    bars: lane.querySelector('.bars'),
    pictures: [...lane.querySelectorAll('[data-at]')],
    end: Number(lane.dataset.end),
    ends: lane.dataset.answers.split(' ').filter(Boolean).map(Number),
    state: lane,
  }));
  let now = length;
  let from;
  const show = () => {
    for (const lane of lanes) {
      const own = Math.min(now, lane.end);
      lane.clock.textContent = own.toFixed(2) + ' s';
      lane.count.textContent = lane.ends.filter((end) => end <= now).length;
      lane.bars.style.clipPath = 'inset(0 ' + (100 - (100 * now) / length) + '% 0 0)';
      lane.state.classList.toggle('running', now < lane.end);
      const shown = lane.pictures.filter((picture) => Number(picture.dataset.at) <= now).pop();
      for (const picture of lane.pictures) picture.style.visibility = picture === shown ? 'visible' : 'hidden';
    }
    slider.value = now;
    slider.setAttribute('aria-valuetext', now.toFixed(2) + ' seconds');
  };
  const stop = () => {
    from = undefined;
    play.textContent = 'Play';
  };
  const step = (time) => {
    if (from === undefined) return;
    // The first frame may have begun before the key was pressed.
    now = Math.min(length, Math.max(0, (time - from) / 1000));
    if (now >= length) stop();
    show();
    if (from !== undefined) requestAnimationFrame(step);
  };
  const start = (at) => {
    from = performance.now() - at * 1000;
    play.textContent = 'Pause';
    requestAnimationFrame(step);
  };
  play.addEventListener('click', () => {
    if (from === undefined) start(now >= length ? 0 : now);
    else stop();
  });
  restart.addEventListener('click', () => start(0));
  slider.addEventListener('input', () => {
    stop();
    now = Number(slider.value);
    show();
  });
  race.querySelector('.controls').hidden = false;
}
`;
