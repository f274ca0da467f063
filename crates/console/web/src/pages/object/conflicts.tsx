// Conflicts of an apply: for each field its present value, the edited value, and the owner.

import { ApiError } from '../../api/client';
import type { Json, JsonObject, KubeObject } from '../../api/types';
import { stepsIn, valueAt } from '../../lib/fieldpath';
import { type Merged } from '../../lib/merge';
import { text } from '../../lib/objects';
import { ownersAt, ownersOf } from '../../lib/owners';
import { ago } from '../../lib/time';
import { visible } from '../../lib/visible';

export interface Conflict {
  path: string;
  owner: string;
  theirs: Json | undefined;
  mine: Json | undefined;
  /** Whether both have changed it. */
  both: boolean;
}

/** The value that a path leads to, by the keys of items and not by their places. */
function valueOf(object: Json, path: string): Json | undefined {
  const steps = stepsIn(object, path);
  return steps === null ? undefined : valueAt(object, steps);
}

/** What server-side apply refused, field by field. */
export function conflictsOf(error: unknown, newest: Json, wanted: JsonObject): Conflict[] {
  const causes = error instanceof ApiError ? (error.status?.details?.causes ?? []) : [];
  return causes
    .filter((cause) => cause.reason === 'FieldManagerConflict')
    .map((cause) => {
      const path = cause.field ?? '';
      const owner = /conflict with "([^"]*)"(.*)/.exec(cause.message ?? '');
      return {
        path,
        owner: owner === null ? (cause.message ?? '') : `${owner[1] ?? ''}${owner[2] ?? ''}`,
        theirs: valueOf(newest, path),
        mine: valueOf(wanted, path),
        both: true,
      };
    });
}

/** What others have changed, with who did it. */
export function mergeConflicts(merged: Merged, newest: KubeObject): Conflict[] {
  const owners = ownersOf(newest);
  return merged.theirs.map(({ path, place, theirs, mine, both }) => {
    const [owner] = ownersAt(owners, place);
    const when = owner === undefined || owner.time === '' ? '' : `, ${ago(Date.now() - Date.parse(owner.time))} ago`;
    return { path, owner: owner === undefined ? 'unknown' : owner.manager + when, theirs, mine, both };
  });
}

export function Conflicts({ conflicts }: { conflicts: Conflict[] }) {
  if (conflicts.length === 0) return null;
  return (
    <table class="plain conflicts">
      <caption>What others wrote</caption>
      <thead>
        <tr>
          <th scope="col">Field</th>
          <th scope="col">Written by</th>
          <th scope="col">Theirs</th>
          <th scope="col">Yours</th>
        </tr>
      </thead>
      <tbody>
        {conflicts.map((one) => (
          <tr key={one.path} class={one.both ? 'both' : ''}>
            <th scope="row">
              <code>{visible(one.path)}</code>
            </th>
            <td>{visible(one.owner)}</td>
            <td>
              <code>{visible(text(one.theirs))}</code>
            </td>
            <td>
              <code>{visible(text(one.mine))}</code>
              {!one.both && <small> unchanged by you</small>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
