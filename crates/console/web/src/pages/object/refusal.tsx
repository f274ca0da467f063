// The reasons why a text was not saved, and the possible next actions.

import { ApiError, told, Unreachable } from '../../api/client';
import type { KubeObject } from '../../api/types';
import { visible } from '../../lib/visible';
import { Problem } from '../../ui/problem';
import { Conflicts, type Conflict } from './conflicts';
import type { Mode } from './editing';

export interface Refused {
  error: unknown;
  conflicts: Conflict[];
  /** The newest state, where somebody else has written meanwhile. */
  newest: KubeObject | null;
}

/** Paths of the text that an action can't handle. */
export interface Places {
  heading: string;
  places: { path: string; why: string }[];
  /** The state to merge with, if these can be left out of the text. */
  newest: KubeObject | null;
}

interface RefusalProps {
  refused: Refused;
  mode: Mode;
  busy: boolean;
  onMerge: (newest: KubeObject) => void;
  onForce: () => void;
  onGiveUp: (conflicts: Conflict[]) => void;
}

export function Refusal({ refused, mode, busy, onMerge, onForce, onGiveUp }: RefusalProps) {
  const { error, conflicts, newest } = refused;
  if (!(error instanceof ApiError || error instanceof Unreachable)) {
    return (
      <p class="problem" role="alert">
        The text can&apos;t be read: {told(error)}
      </p>
    );
  }
  if (newest === null) return <Problem error={error} />;
  return (
    <Problem error={error}>
      <Conflicts conflicts={conflicts} />
      <div class="buttons">
        {mode === 'replace' ? (
          <button type="button" class="main" disabled={busy} onClick={() => onMerge(newest)}>
            Take their changes over, and keep mine
          </button>
        ) : (
          <>
            <button type="button" class="main" disabled={busy} onClick={() => onGiveUp(conflicts)}>
              Leave these fields to them
            </button>
            <button type="button" class="danger" disabled={busy} onClick={onForce}>
              Take the fields over
            </button>
          </>
        )}
      </div>
    </Problem>
  );
}

interface PlacesProps {
  refused: Places;
  busy: boolean;
  onLeaveOut: (newest: KubeObject, paths: string[]) => void;
}

export function PlacesRefused({ refused, busy, onLeaveOut }: PlacesProps) {
  const { newest, places } = refused;
  const paths = places.map(({ path }) => path);
  return (
    <div class="problem" role="alert">
      <h2>{refused.heading}</h2>
      <ul>
        {places.map(({ path, why }) => (
          <li key={path}>
            <code>{visible(path)}</code> {why}
          </li>
        ))}
      </ul>
      {newest !== null && (
        <button type="button" class="danger" disabled={busy} onClick={() => onLeaveOut(newest, paths)}>
          Leave these changes of mine out
        </button>
      )}
    </div>
  );
}
