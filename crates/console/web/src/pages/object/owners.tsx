// The owners of the fields of an object.

import { useMemo } from 'preact/hooks';
import type { KubeObject } from '../../api/types';
import { ownersOf } from '../../lib/owners';
import { full } from '../../lib/time';

export function Owners({ object }: { object: KubeObject }) {
  const owners = useMemo(() => ownersOf(object), [object]);
  if (owners.length === 0) return <p class="muted">Nobody owns a field of this object.</p>;
  return (
    <ul class="owners">
      {owners.map((owner) => (
        <li key={`${owner.manager} ${owner.operation} ${owner.subresource}`}>
          <details>
            <summary>
              <strong>{owner.manager}</strong> {owner.operation === 'Apply' ? 'applies' : 'updates'}{' '}
              {owner.paths.length} fields
              {owner.subresource !== '' && ` through ${owner.subresource}`}
              <small> · {full(owner.time)}</small>
            </summary>
            <ul>
              {owner.paths.map((path) => (
                <li key={path}>
                  <code>{path}</code>
                </li>
              ))}
            </ul>
          </details>
        </li>
      ))}
    </ul>
  );
}
