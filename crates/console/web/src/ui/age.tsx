// An age that is renewed while the page is open, with the point in time beside it.

import { ago, full } from '../lib/time';
import { store, useStore } from '../state/store';

/** How often ages are renewed, in milliseconds. */
const TICK = 1000;
const now = store(Date.now());
let shown = 0;
let timer: ReturnType<typeof setInterval> | undefined;

/** The time for everything that is shown; it runs only while something shows it and the tab is seen. */
const ticking = {
  ...now,
  follow(changed: () => void) {
    shown += 1;
    timer ??= setInterval(() => {
      if (!document.hidden) now.set(Date.now());
    }, TICK);
    const stop = now.follow(changed);
    return () => {
      stop();
      shown -= 1;
      if (shown > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  },
};

export function useNow(): number {
  return useStore(ticking);
}

/** How long ago a point in time was. */
export function Age({ since, suffix = '' }: { since: string; suffix?: string }) {
  const time = useNow();
  const at = Date.parse(since);
  if (Number.isNaN(at)) return <>{since}</>;
  return (
    <time dateTime={since} title={full(since)}>
      {ago(time - at)}
      {suffix}
    </time>
  );
}
