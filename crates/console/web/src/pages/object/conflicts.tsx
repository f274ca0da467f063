// Conflicts by the owners of the fields: what is there, what one wants, and who wrote it.

import { ApiError } from '../../api/client';
import type { Json, JsonObject, KubeObject } from '../../api/types';
import { editedFields, stepsOf } from '../../lib/diff';
import { asJson, at, shown, text } from '../../lib/objects';
import { ownersAt, ownersOf } from '../../lib/owners';
import { ago } from '../../lib/time';

export interface Conflict {
  path: string;
  owner: string;
  theirs: Json | undefined;
  mine: Json | undefined;
  /** Whether both have changed it. */
  both: boolean;
}

/** A path of a refusal, in which items of lists are named by their keys, as one with places. */
function placed(path: string, object: Json): string {
  let made = '';
  let value: unknown = object;
  for (const match of path.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
    if (match[1] !== undefined) {
      value = at(value, match[1]);
      made += `.${match[1]}`;
      continue;
    }
    const keys = [...(match[2] ?? '').matchAll(/([\w.-]+)=("(?:[^"\\]|\\.)*"|[^,\]]+)/g)];
    const wanted = keys.map((one) => [one[1] ?? '', (one[2] ?? '').replaceAll('"', '')] as const);
    const items = Array.isArray(value) ? (value as unknown[]) : [];
    const index = items.findIndex((item) => wanted.every(([name, is]) => text(at(item, name)) === is));
    value = items[index];
    made += `[${index}]`;
  }
  return made;
}

/** What server-side apply refused, field by field. */
export function conflictsOf(error: unknown, newest: Json, wanted: JsonObject): Conflict[] {
  const causes = error instanceof ApiError ? (error.status?.details?.causes ?? []) : [];
  return causes
    .filter((cause) => cause.reason === 'FieldManagerConflict')
    .map((cause) => {
      const path = placed(cause.field ?? '', newest);
      const owner = /conflict with "([^"]*)"(.*)/.exec(cause.message ?? '');
      return {
        path,
        owner: owner === null ? (cause.message ?? '') : `${owner[1] ?? ''}${owner[2] ?? ''}`,
        theirs: at(newest, ...stepsOf(path)) as Json | undefined,
        mine: at(wanted, ...stepsOf(path)) as Json | undefined,
        both: true,
      };
    });
}

/** What others have changed since `base` was read, with who did it. */
export function mergeConflicts(base: Json, newest: KubeObject, wanted: JsonObject): Conflict[] {
  const owners = ownersOf(newest);
  const plain = shown(base as unknown as KubeObject);
  const mine = editedFields(asJson(plain), wanted).map((change) => change.path);
  return editedFields(asJson(plain), asJson(shown(newest))).map(({ path, after }) => {
    const [owner] = ownersAt(owners, path);
    const when = owner === undefined || owner.time === '' ? '' : `, ${ago(Date.now() - Date.parse(owner.time))} ago`;
    return {
      path,
      owner: owner === undefined ? 'unknown' : owner.manager + when,
      theirs: after,
      mine: at(wanted, ...stepsOf(path)) as Json | undefined,
      both: mine.some((own) => own === path || own.startsWith(path) || path.startsWith(own)),
    };
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
              <code>{one.path}</code>
            </th>
            <td>{one.owner}</td>
            <td>
              <code>{text(one.theirs)}</code>
            </td>
            <td>
              <code>{text(one.mine)}</code>
              {!one.both && <small> unchanged by you</small>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
