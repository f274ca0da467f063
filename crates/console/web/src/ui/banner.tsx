// Says over every page that the server does not answer: since when, what is tried, and a button to try now.

import { askAgain, connection } from '../api/connection';
import { clock } from '../lib/time';
import { useStore } from '../state/store';
import { useNow } from './age';

export function ConnectionBanner() {
  const { why, since, next } = useStore(connection);
  const now = useNow();
  if (why === '') return null;
  const seconds = Math.max(0, Math.ceil((next - now) / 1000));
  return (
    <div class="banner" role="alert">
      <p>
        <strong>{why}</strong> Since {clock(since)}. What is shown may be old. It is asked again{' '}
        {seconds === 0 ? 'now' : `in ${seconds} s`}.
      </p>
      <button type="button" onClick={() => void askAgain()}>
        Try now
      </button>
    </div>
  );
}
