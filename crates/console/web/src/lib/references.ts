// The objects that an object names, and those that name it: by fields, by selectors, and by owners.

import { at, text } from './objects';
import { literal } from './paths';

export interface Reference {
  /** What it is for the object: `Node`, `Volume`. */
  role: string;
  group: string;
  plural: string;
  /** Empty for an object without a namespace. */
  namespace: string;
  name: string;
}

/** A list of objects that belong together, as a query of a collection. */
export interface Query {
  title: string;
  group: string;
  plural: string;
  /** Empty for all namespaces. */
  namespace: string;
  labels?: string;
  filter?: string;
}

const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

/** A selector of labels as a text of the API; empty where it selects nothing or everything. */
export function selectorText(selector: unknown): string {
  const labels = at(selector, 'matchLabels') ?? (at(selector, 'matchExpressions') === undefined ? selector : undefined);
  const equal = Object.entries((labels ?? {}) as Record<string, unknown>).map(
    ([key, value]) => `${key}=${text(value)}`,
  );
  const expressions = list(at(selector, 'matchExpressions')).map((one) => {
    const [key, operator] = [text(at(one, 'key')), text(at(one, 'operator'))];
    const values = list(at(one, 'values')).map(text).join(',');
    if (operator === 'Exists') return key;
    if (operator === 'DoesNotExist') return `!${key}`;
    return `${key} ${operator === 'NotIn' ? 'notin' : 'in'} (${values})`;
  });
  return [...equal, ...expressions].join(',');
}

function ofPodSpec(spec: unknown, namespace: string): Reference[] {
  const found: Reference[] = [];
  const add = (role: string, plural: string, name: unknown, group = '') => {
    if (typeof name === 'string' && name !== '') found.push({ role, group, plural, namespace, name });
  };
  add('Service account', 'serviceaccounts', at(spec, 'serviceAccountName'));
  for (const volume of list(at(spec, 'volumes'))) {
    add('Volume', 'configmaps', at(volume, 'configMap', 'name'));
    add('Volume', 'secrets', at(volume, 'secret', 'secretName'));
    add('Volume', 'persistentvolumeclaims', at(volume, 'persistentVolumeClaim', 'claimName'));
    for (const source of list(at(volume, 'projected', 'sources'))) {
      add('Volume', 'configmaps', at(source, 'configMap', 'name'));
      add('Volume', 'secrets', at(source, 'secret', 'name'));
    }
  }
  for (const container of [...list(at(spec, 'initContainers')), ...list(at(spec, 'containers'))]) {
    for (const from of list(at(container, 'envFrom'))) {
      add('Environment', 'configmaps', at(from, 'configMapRef', 'name'));
      add('Environment', 'secrets', at(from, 'secretRef', 'name'));
    }
    for (const variable of list(at(container, 'env'))) {
      add('Environment', 'configmaps', at(variable, 'valueFrom', 'configMapKeyRef', 'name'));
      add('Environment', 'secrets', at(variable, 'valueFrom', 'secretKeyRef', 'name'));
    }
  }
  for (const secret of list(at(spec, 'imagePullSecrets'))) add('Image pull secret', 'secrets', at(secret, 'name'));
  const nodeName = at(spec, 'nodeName');
  if (typeof nodeName === 'string' && nodeName !== '') {
    found.push({ role: 'Node', group: '', plural: 'nodes', namespace: '', name: nodeName });
  }
  const priority = at(spec, 'priorityClassName');
  if (typeof priority === 'string' && priority !== '') {
    found.push({
      role: 'Priority',
      group: 'scheduling.k8s.io',
      plural: 'priorityclasses',
      namespace: '',
      name: priority,
    });
  }
  return found;
}

const PLURALS: Record<string, [string, string]> = {
  Deployment: ['apps', 'deployments'],
  StatefulSet: ['apps', 'statefulsets'],
  ReplicaSet: ['apps', 'replicasets'],
  DaemonSet: ['apps', 'daemonsets'],
  Role: ['rbac.authorization.k8s.io', 'roles'],
  ClusterRole: ['rbac.authorization.k8s.io', 'clusterroles'],
  ServiceAccount: ['', 'serviceaccounts'],
};

function ofKind(role: string, kind: unknown, name: unknown, namespace: string): Reference[] {
  const found = typeof kind === 'string' && Object.hasOwn(PLURALS, kind) ? PLURALS[kind] : undefined;
  if (found === undefined || typeof name !== 'string') return [];
  return [{ role, group: found[0], plural: found[1], namespace: kind === 'ClusterRole' ? '' : namespace, name }];
}

/** The objects that the fields of an object name, each once. */
export function referencesOf(resource: string, object: unknown): Reference[] {
  const namespace = text(at(object, 'metadata', 'namespace'));
  const found: Reference[] = [];
  const add = (role: string, group: string, plural: string, name: unknown, space = namespace) => {
    if (typeof name === 'string' && name !== '') found.push({ role, group, plural, namespace: space, name });
  };
  switch (resource) {
    case 'pods':
      found.push(...ofPodSpec(at(object, 'spec'), namespace));
      break;
    case 'deployments.apps':
    case 'statefulsets.apps':
    case 'daemonsets.apps':
    case 'replicasets.apps':
    case 'jobs.batch':
      found.push(...ofPodSpec(at(object, 'spec', 'template', 'spec'), namespace));
      break;
    case 'cronjobs.batch':
      found.push(...ofPodSpec(at(object, 'spec', 'jobTemplate', 'spec', 'template', 'spec'), namespace));
      break;
    case 'ingresses.networking.k8s.io':
      add('Default backend', '', 'services', at(object, 'spec', 'defaultBackend', 'service', 'name'));
      for (const rule of list(at(object, 'spec', 'rules'))) {
        for (const path of list(at(rule, 'http', 'paths'))) {
          add('Backend', '', 'services', at(path, 'backend', 'service', 'name'));
        }
      }
      for (const tls of list(at(object, 'spec', 'tls'))) add('Certificate', '', 'secrets', at(tls, 'secretName'));
      add('Class', 'networking.k8s.io', 'ingressclasses', at(object, 'spec', 'ingressClassName'), '');
      break;
    case 'horizontalpodautoscalers.autoscaling':
      found.push(
        ...ofKind(
          'Scales',
          at(object, 'spec', 'scaleTargetRef', 'kind'),
          at(object, 'spec', 'scaleTargetRef', 'name'),
          namespace,
        ),
      );
      break;
    case 'persistentvolumeclaims':
      add('Volume', '', 'persistentvolumes', at(object, 'spec', 'volumeName'), '');
      add('Class', 'storage.k8s.io', 'storageclasses', at(object, 'spec', 'storageClassName'), '');
      break;
    case 'persistentvolumes':
      add(
        'Claim',
        '',
        'persistentvolumeclaims',
        at(object, 'spec', 'claimRef', 'name'),
        text(at(object, 'spec', 'claimRef', 'namespace')),
      );
      add('Class', 'storage.k8s.io', 'storageclasses', at(object, 'spec', 'storageClassName'), '');
      break;
    case 'rolebindings.rbac.authorization.k8s.io':
    case 'clusterrolebindings.rbac.authorization.k8s.io':
      found.push(...ofKind('Role', at(object, 'roleRef', 'kind'), at(object, 'roleRef', 'name'), namespace));
      for (const subject of list(at(object, 'subjects'))) {
        found.push(...ofKind('Subject', at(subject, 'kind'), at(subject, 'name'), text(at(subject, 'namespace'))));
      }
      break;
    case 'events': {
      const about = at(object, 'involvedObject');
      found.push(...ofKind('About', at(about, 'kind'), at(about, 'name'), text(at(about, 'namespace'))));
      if (at(about, 'kind') === 'Pod') add('About', '', 'pods', at(about, 'name'), text(at(about, 'namespace')));
      if (at(about, 'kind') === 'Node') add('About', '', 'nodes', at(about, 'name'), '');
      break;
    }
    case 'serviceaccounts':
      for (const secret of list(at(object, 'secrets'))) add('Secret', '', 'secrets', at(secret, 'name'));
      break;
    default:
  }
  const seen = new Set<string>();
  return found.filter((one) => {
    const key = `${one.group}/${one.plural}/${one.namespace}/${one.name}`;
    return !seen.has(key) && seen.add(key);
  });
}

const quoted = (value: string) => literal(value) ?? "''";

/** Filters for pods that use an object by its name. */
function usersOf(field: 'configMap' | 'secret', name: string): string {
  const n = quoted(name);
  const volume = field === 'configMap' ? `.configMap.name == ${n}` : `.secret.secretName == ${n}`;
  const key = field === 'configMap' ? 'configMapKeyRef' : 'secretKeyRef';
  const from = field === 'configMap' ? 'configMapRef' : 'secretRef';
  return [
    `any(spec.volumes, ${volume})`,
    `spec.containers[*].envFrom[*].${from}.name == ${n}`,
    `spec.containers[*].env[*].valueFrom.${key}.name == ${n}`,
  ].join(' or ');
}

/** Lists of objects that belong to an object: those that it selects, and those that name it. */
export function queriesOf(resource: string, object: unknown): Query[] {
  const name = text(at(object, 'metadata', 'name'));
  const namespace = text(at(object, 'metadata', 'namespace'));
  const pods = (title: string, more: Partial<Query>): Query => ({
    title,
    group: '',
    plural: 'pods',
    namespace,
    ...more,
  });
  const selector = at(object, 'spec', 'selector');
  const labels = Object.entries((at(object, 'metadata', 'labels') ?? {}) as Record<string, unknown>);
  switch (resource) {
    case 'services': {
      const chosen = selectorText(selector ?? {});
      return [
        ...(chosen === '' ? [] : [pods('Pods that it sends to', { labels: chosen })]),
        {
          title: 'Endpoint slices',
          group: 'discovery.k8s.io',
          plural: 'endpointslices',
          namespace,
          labels: `kubernetes.io/service-name=${name}`,
        },
        {
          title: 'Ingresses that send to it',
          group: 'networking.k8s.io',
          plural: 'ingresses',
          namespace,
          filter: `spec.rules[*].http.paths[*].backend.service.name == ${quoted(name)} or spec.defaultBackend.service.name == ${quoted(name)}`,
        },
      ];
    }
    case 'deployments.apps':
    case 'statefulsets.apps':
    case 'daemonsets.apps':
    case 'replicasets.apps':
    case 'jobs.batch': {
      const chosen = selectorText(selector ?? {});
      const kind = text(at(object, 'kind'));
      return [
        ...(chosen === '' ? [] : [pods('Pods', { labels: chosen })]),
        {
          title: 'Autoscalers',
          group: 'autoscaling',
          plural: 'horizontalpodautoscalers',
          namespace,
          filter: `spec.scaleTargetRef.name == ${quoted(name)} and spec.scaleTargetRef.kind == ${quoted(kind)}`,
        },
      ];
    }
    case 'pods': {
      const members = labels.map(([key, value]) => `${key}=${text(value)}`);
      return members.length === 0
        ? []
        : [
            {
              title: 'Services in its namespace',
              group: '',
              plural: 'services',
              namespace,
              filter: 'exists(spec.selector)',
            },
          ];
    }
    case 'nodes':
      return [pods('Pods on it', { namespace: '', filter: `spec.nodeName == ${quoted(name)}` })];
    case 'configmaps':
      return [pods('Pods that use it', { filter: usersOf('configMap', name) })];
    case 'secrets':
      return [pods('Pods that use it', { filter: usersOf('secret', name) })];
    case 'persistentvolumeclaims':
      return [
        pods('Pods that use it', { filter: `any(spec.volumes, .persistentVolumeClaim.claimName == ${quoted(name)})` }),
      ];
    case 'serviceaccounts':
      return [
        pods('Pods that run as it', { filter: `spec.serviceAccountName == ${quoted(name)}` }),
        ...['rolebindings', 'clusterrolebindings'].map((plural) => ({
          title: plural === 'rolebindings' ? 'Role bindings' : 'Cluster role bindings',
          group: 'rbac.authorization.k8s.io',
          plural,
          namespace: '',
          filter: `any(subjects, .kind == 'ServiceAccount' and .name == ${quoted(name)} and .namespace == ${quoted(namespace)})`,
        })),
      ];
    case 'roles.rbac.authorization.k8s.io':
    case 'clusterroles.rbac.authorization.k8s.io':
      return (resource.startsWith('roles') ? ['rolebindings'] : ['clusterrolebindings', 'rolebindings']).map(
        (plural) => ({
          title: plural === 'rolebindings' ? 'Role bindings' : 'Cluster role bindings',
          group: 'rbac.authorization.k8s.io',
          plural,
          namespace,
          filter: `roleRef.name == ${quoted(name)} and roleRef.kind == ${quoted(text(at(object, 'kind')))}`,
        }),
      );
    case 'namespaces':
      return [pods('Pods in it', { namespace: name })];
    case 'storageclasses.storage.k8s.io':
      return [
        {
          title: 'Claims of it',
          group: '',
          plural: 'persistentvolumeclaims',
          namespace: '',
          filter: `spec.storageClassName == ${quoted(name)}`,
        },
      ];
    default:
      return [];
  }
}

/** Whether a selector of plain labels selects something with these labels. */
export function selects(selector: Record<string, unknown>, labels: Record<string, string>): boolean {
  const wanted = Object.entries(selector);
  return wanted.length > 0 && wanted.every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value);
}
