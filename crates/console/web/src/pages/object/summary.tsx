// The summary of an object: its age, labels, owners, and the conditions of its status.

import { discovery, ofKind } from '../../api/discovery';
import { at, text } from '../../lib/objects';
import { ago, full } from '../../lib/time';
import { visible } from '../../lib/visible';
import { href } from '../../state/router';
import { useStore } from '../../state/store';
import { groupSegment } from '../list/query';
import type { Subject } from './object';

interface Condition {
  type?: unknown;
  status?: unknown;
  reason?: unknown;
  message?: unknown;
  lastTransitionTime?: unknown;
}

export function OwnerLinks({ subject }: { subject: Subject }) {
  const { resources } = useStore(discovery);
  const owners = subject.object.metadata.ownerReferences ?? [];
  return (
    <>
      {owners.map((owner) => {
        const resource = ofKind(resources, owner.apiVersion, owner.kind);
        const space = resource?.namespaced === true ? subject.of.namespace : '-';
        const name = visible(`${owner.kind} ${owner.name}`);
        if (resource === undefined) return <span key={owner.uid}>{name}</span>;
        const to = href(['r', groupSegment(resource.group), resource.version, resource.plural, space, owner.name]);
        return (
          <a key={owner.uid} href={to}>
            {name}
          </a>
        );
      })}
    </>
  );
}

export function Summary({ subject }: { subject: Subject }) {
  const { object } = subject;
  const { metadata } = object;
  const found = at(object, 'status', 'conditions');
  const conditions = Array.isArray(found) ? (found as Condition[]) : [];
  const created = metadata.creationTimestamp;
  return (
    <div class="summary">
      <dl>
        {created !== undefined && (
          <div>
            <dt>Age</dt>
            <dd title={full(created)}>{ago(Date.now() - Date.parse(created))}</dd>
          </div>
        )}
        {metadata.deletionTimestamp !== undefined && (
          <div>
            <dt>Being deleted</dt>
            <dd>
              since {full(metadata.deletionTimestamp)}, waits for {metadata.finalizers?.join(', ') ?? 'nothing'}
            </dd>
          </div>
        )}
        {(metadata.ownerReferences ?? []).length > 0 && (
          <div>
            <dt>Owned by</dt>
            <dd>
              <OwnerLinks subject={subject} />
            </dd>
          </div>
        )}
        {Object.keys(metadata.labels ?? {}).length > 0 && (
          <div>
            <dt>Labels</dt>
            <dd class="labels">
              {Object.entries(metadata.labels ?? {}).map(([key, value]) => (
                <a
                  key={key}
                  class="label"
                  href={href(
                    ['r', groupSegment(subject.resource.group), subject.resource.version, subject.resource.plural],
                    { labels: `${key}=${value}` },
                  )}
                >
                  {visible(`${key}=${value}`)}
                </a>
              ))}
            </dd>
          </div>
        )}
      </dl>
      {conditions.length > 0 && (
        <table class="plain">
          <caption>Conditions</caption>
          <thead>
            <tr>
              <th scope="col">Type</th>
              <th scope="col">Status</th>
              <th scope="col">Reason</th>
              <th scope="col">Message</th>
              <th scope="col">Since</th>
            </tr>
          </thead>
          <tbody>
            {conditions.map((one) => {
              const since = text(one.lastTransitionTime);
              return (
                <tr key={text(one.type)}>
                  <th scope="row">{visible(text(one.type))}</th>
                  <td class={`is-${text(one.status).toLowerCase()}`}>{text(one.status)}</td>
                  <td>{visible(text(one.reason))}</td>
                  <td>{visible(text(one.message))}</td>
                  <td title={full(since)}>{since === '' ? '' : ago(Date.now() - Date.parse(since))}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </div>
  );
}
