// The subjects that may do something, by roles and bindings (RBAC).
//
// A binding gives the rules of one role to its subjects. Roles and their bindings count in their namespace, and those of
// the cluster everywhere. A cluster role that a role binding names counts in the namespace of the binding.

import type { KubeObject } from '../api/types';
import { at, text } from './objects';

export interface Question {
  verb: string;
  group: string;
  /** The plural name, with a subresource behind a slash. */
  resource: string;
  /** Empty for the whole cluster. */
  namespace: string;
  /** Empty for any object. */
  name: string;
}

export interface Subject {
  kind: string;
  namespace: string;
  name: string;
}

export interface Grant {
  subject: Subject;
  role: { kind: string; name: string };
  binding: { kind: string; namespace: string; name: string };
  /** The objects that the rule names; none for all. */
  names: string[];
}

const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
const texts = (value: unknown): string[] => list(value).filter((one): one is string => typeof one === 'string');

function covers(patterns: string[], wanted: string): boolean {
  const [, subresource] = wanted.split('/');
  const any = subresource === undefined ? [] : [`*/${subresource}`];
  return ['*', wanted, ...any].some((one) => patterns.includes(one));
}

/** The names that the rules of a role allow the question for: an empty list for all, null for none. */
export function allowedNames(role: unknown, asked: Question): string[] | null {
  const fitting = list(at(role, 'rules')).filter(
    (rule) =>
      covers(texts(at(rule, 'verbs')), asked.verb) &&
      covers(texts(at(rule, 'apiGroups')), asked.group) &&
      covers(texts(at(rule, 'resources')), asked.resource),
  );
  if (fitting.length === 0) return null;
  const names = fitting.map((rule) => texts(at(rule, 'resourceNames')));
  if (names.some((one) => one.length === 0)) return [];
  const all = [...new Set(names.flat())];
  if (asked.name === '') return all;
  return all.includes(asked.name) ? all : null;
}

export interface Roles {
  clusterRoles: KubeObject[];
  roles: KubeObject[];
  clusterBindings: KubeObject[];
  bindings: KubeObject[];
}

function subjectsOf(binding: KubeObject): Subject[] {
  return list(at(binding, 'subjects')).map((one) => ({
    kind: text(at(one, 'kind')),
    namespace: text(at(one, 'namespace')),
    name: text(at(one, 'name')),
  }));
}

/** Who may do it, with the role and the binding that say so. */
export function grantsOf(found: Roles, asked: Question): Grant[] {
  const clusterRoles = new Map(found.clusterRoles.map((role) => [role.metadata.name, role]));
  const roles = new Map(found.roles.map((role) => [role.metadata.name, role]));
  const grants = (binding: KubeObject, kind: string): Grant[] => {
    const role = { kind: text(at(binding, 'roleRef', 'kind')), name: text(at(binding, 'roleRef', 'name')) };
    const isOfNamespace = role.kind === 'Role' && kind === 'RoleBinding';
    const names = allowedNames((isOfNamespace ? roles : clusterRoles).get(role.name), asked);
    if (names === null) return [];
    const of = { kind, namespace: binding.metadata.namespace ?? '', name: binding.metadata.name };
    return subjectsOf(binding).map((subject) => ({ subject, role, binding: of, names }));
  };
  return [
    ...found.clusterBindings.flatMap((one) => grants(one, 'ClusterRoleBinding')),
    ...found.bindings.flatMap((one) => grants(one, 'RoleBinding')),
  ];
}
