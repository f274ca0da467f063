// The difference of two texts, line by line.

import { useMemo, useState } from 'preact/hooks';
import { diffLines, hunks } from '../lib/diff';
import { visible } from '../lib/visible';

const AROUND = 3;
const MARKS = { same: ' ', gone: '-', new: '+' };
const WORDS = { same: '', gone: 'removed: ', new: 'added: ' };

export function DiffView({ before, after, label }: { before: string; after: string; label: string }) {
  const [all, setAll] = useState(false);
  const lines = useMemo(() => diffLines(before.split('\n'), after.split('\n')), [before, after]);
  const changed = lines.filter((line) => line.kind !== 'same').length;
  if (changed === 0) return <p class="muted">Nothing differs.</p>;
  const shown = all ? lines : hunks(lines, AROUND);
  return (
    <div class="diff">
      <div class="yaml-actions">
        <button type="button" class="quiet" aria-pressed={all} onClick={() => setAll(!all)}>
          {all ? 'Show changes only' : 'Show all lines'}
        </button>
      </div>
      <div class="code" role="region" aria-label={label} tabIndex={0}>
        {shown.map((line, at) =>
          line === null ? (
            <div key={at} class="line left-out">
              ⋯
            </div>
          ) : (
            <div key={at} class={`line ${line.kind}`}>
              <span aria-hidden="true">{MARKS[line.kind]} </span>
              <span class="hidden">{WORDS[line.kind]}</span>
              <span class="text">{visible(line.text)}</span>
            </div>
          ),
        )}
      </div>
    </div>
  );
}
