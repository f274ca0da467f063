// A state as a word with a colour and a sign, so that it is seen without colours too.

import { toneOf, type Tone } from '../lib/kinds';
import { visible } from '../lib/visible';

export function Status({ word, tone, title }: { word: string; tone?: Tone | undefined; title?: string | undefined }) {
  if (word === '') return null;
  const shown = tone ?? toneOf(word) ?? 'idle';
  return (
    <span class={`status is-${shown}`} title={title}>
      <span class="dot" aria-hidden="true" />
      {visible(word)}
    </span>
  );
}
