// The overview of an object: the parts of its kind, with what all objects have in common.

import { fullName } from '../../../api/discovery';
import { full } from '../../../lib/time';
import { visible } from '../../../lib/visible';
import { Age } from '../../../ui/age';
import { referencesOf } from '../../../lib/references';
import type { Subject } from '../object';
import { OwnerLinks } from '../summary';
import { Facts, Labels, ObjectLink, Panel } from './blocks';
import {
  BindingOverview,
  CronJobOverview,
  DataOverview,
  DefinitionOverview,
  EventOverview,
  GenericOverview,
  IngressOverview,
  NodeOverview,
  PodOverview,
  RoleOverview,
  ServiceOverview,
  VolumeOverview,
  WorkloadOverview,
} from './kinds';

function OfKind({ subject }: { subject: Subject }) {
  const name = fullName(subject.resource);
  switch (name) {
    case 'pods':
      return <PodOverview subject={subject} />;
    case 'deployments.apps':
    case 'statefulsets.apps':
    case 'daemonsets.apps':
    case 'replicasets.apps':
    case 'jobs.batch':
      return <WorkloadOverview subject={subject} name={name} />;
    case 'cronjobs.batch':
      return <CronJobOverview subject={subject} />;
    case 'services':
      return <ServiceOverview subject={subject} />;
    case 'ingresses.networking.k8s.io':
      return <IngressOverview subject={subject} />;
    case 'nodes':
      return <NodeOverview subject={subject} />;
    case 'configmaps':
      return <DataOverview subject={subject} isSecret={false} />;
    case 'secrets':
      return <DataOverview subject={subject} isSecret />;
    case 'persistentvolumes':
    case 'persistentvolumeclaims':
      return <VolumeOverview subject={subject} />;
    case 'roles.rbac.authorization.k8s.io':
    case 'clusterroles.rbac.authorization.k8s.io':
      return <RoleOverview subject={subject} />;
    case 'rolebindings.rbac.authorization.k8s.io':
    case 'clusterrolebindings.rbac.authorization.k8s.io':
      return <BindingOverview subject={subject} />;
    case 'customresourcedefinitions.apiextensions.k8s.io':
      return <DefinitionOverview subject={subject} />;
    case 'events':
    case 'events.events.k8s.io':
      return <EventOverview subject={subject} />;
    default:
      return <GenericOverview subject={subject} />;
  }
}

const PARTS: Record<string, string> = {
  configmaps: 'ConfigMap',
  secrets: 'Secret',
  nodes: 'Node',
  services: 'Service',
  serviceaccounts: 'ServiceAccount',
  persistentvolumes: 'PersistentVolume',
  persistentvolumeclaims: 'PersistentVolumeClaim',
};

export function Overview({ subject }: { subject: Subject }) {
  const { object, of, resource } = subject;
  const { metadata } = object;
  const created = metadata.creationTimestamp;
  const owners = metadata.ownerReferences ?? [];
  const references = referencesOf(fullName(resource), object);
  return (
    <div class="overview">
      <Panel title="About">
        <div class="summary">
          <Facts
            facts={[
              [
                'Created',
                created === undefined ? (
                  ''
                ) : (
                  <>
                    <Age since={created} suffix=" ago" /> <small>{full(created)}</small>
                  </>
                ),
              ],
              ['Deletion', metadata.deletionTimestamp === undefined ? '' : `since ${full(metadata.deletionTimestamp)}`],
              [
                'Waits for',
                metadata.deletionTimestamp === undefined ? '' : (metadata.finalizers?.join(', ') ?? 'nothing'),
              ],
              ['Owned by', owners.length === 0 ? '' : <OwnerLinks subject={subject} />],
              [
                'Labels',
                Object.keys(metadata.labels ?? {}).length === 0 ? (
                  ''
                ) : (
                  <Labels labels={metadata.labels ?? {}} of={resource} namespace={of.namespace} />
                ),
              ],
              ['Annotations', annotations(metadata.annotations ?? {})],
              [
                'Refers to',
                references.length === 0 ? (
                  ''
                ) : (
                  <span class="references">
                    {references.map((one) => (
                      <span key={`${one.plural}/${one.name}`}>
                        <ObjectLink {...one}>
                          <small>
                            {(Object.hasOwn(PARTS, one.plural) ? PARTS[one.plural] : undefined) ?? one.role}
                          </small>{' '}
                          {visible(one.name)}
                        </ObjectLink>
                      </span>
                    ))}
                  </span>
                ),
              ],
            ]}
          />
        </div>
      </Panel>
      <OfKind subject={subject} />
    </div>
  );
}

/** How many characters of an annotation are shown. */
const SHOWN = 200;

function annotations(all: Record<string, string>) {
  const entries = Object.entries(all);
  if (entries.length === 0) return '';
  return (
    <details class="annotations">
      <summary>{entries.length}</summary>
      <dl>
        {entries.map(([key, value]) => (
          <div key={key}>
            <dt>{visible(key)}</dt>
            <dd>{visible(value.length > SHOWN ? `${value.slice(0, SHOWN)}…` : value)}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
