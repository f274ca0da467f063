// Links to the owners of an object.

import { discovery, ofKind } from '../../api/discovery';
import { objectHref } from '../../lib/links';
import { visible } from '../../lib/visible';
import { useStore } from '../../state/store';
import type { Subject } from './object';

export function OwnerLinks({ subject }: { subject: Subject }) {
  const { resources } = useStore(discovery);
  const owners = subject.object.metadata.ownerReferences ?? [];
  return (
    <>
      {owners.map((owner) => {
        const resource = ofKind(resources, owner.apiVersion, owner.kind);
        const space = resource?.namespaced === true ? subject.of.namespace : '';
        const name = visible(`${owner.kind} ${owner.name}`);
        if (resource === undefined) return <span key={owner.uid}>{name}</span>;
        return (
          <a key={owner.uid} href={objectHref(resource, space, owner.name)}>
            {name}
          </a>
        );
      })}
    </>
  );
}
