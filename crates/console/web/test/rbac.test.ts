import assert from 'node:assert/strict';
import test from 'node:test';
import type { KubeObject } from '../src/api/types';
import { grantsOf, type Question } from '../src/lib/rbac';

const object = (kind: string, name: string, namespace: string, more: object): KubeObject => ({
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind,
  metadata: { name, ...(namespace === '' ? {} : { namespace }) },
  ...more,
});
const rule = (verbs: string[], resources: string[], apiGroups = [''], resourceNames?: string[]) => ({
  verbs,
  resources,
  apiGroups,
  ...(resourceNames === undefined ? {} : { resourceNames }),
});
const binding = (kind: string, name: string, namespace: string, role: string, who: string) =>
  object(kind, name, namespace, {
    roleRef: { kind: role.split('/')[0], name: role.split('/')[1] },
    subjects: [{ kind: 'User', name: who }],
  });
const asks = (verb: string, resource: string, name = '', group = ''): Question => ({
  verb,
  resource,
  group,
  namespace: 'shop',
  name,
});

const FOUND = {
  clusterRoles: [
    object('ClusterRole', 'all', '', { rules: [rule(['*'], ['*'], ['*'])] }),
    object('ClusterRole', 'edit', '', { rules: [rule(['delete', 'get'], ['secrets', 'pods/exec'])] }),
    object('ClusterRole', '__proto__', '', { rules: 'text' }),
  ],
  roles: [
    object('Role', 'one', 'shop', { rules: [rule(['delete'], ['secrets'], [''], ['a', 'b'])] }),
    object('Role', 'edit', 'shop', { rules: [rule(['get'], ['configmaps'])] }),
    object('Role', 'below', 'shop', { rules: [rule(['create'], ['*/exec'])] }),
  ],
  clusterBindings: [binding('ClusterRoleBinding', 'admins', '', 'ClusterRole/all', 'ann')],
  bindings: [
    binding('RoleBinding', 'editors', 'shop', 'ClusterRole/edit', 'bob'),
    binding('RoleBinding', 'own', 'shop', 'Role/edit', 'cid'),
    binding('RoleBinding', 'some', 'shop', 'Role/one', 'dan'),
    binding('RoleBinding', 'below', 'shop', 'Role/below', 'eve'),
    binding('RoleBinding', 'gone', 'shop', 'Role/nothing', 'fay'),
    object('RoleBinding', 'odd', 'shop', { roleRef: null, subjects: 'text' }),
  ],
};
const who = (question: Question) => grantsOf(FOUND, question).map(({ subject }) => subject.name);

test('a role of the cluster and one of the namespace of the same name are two', () => {
  assert.deepEqual(who(asks('delete', 'secrets')), ['ann', 'bob', 'dan']);
  assert.deepEqual(who(asks('get', 'configmaps')), ['ann', 'cid']);
});

test('rules that name objects allow these alone', () => {
  assert.deepEqual(who(asks('delete', 'secrets', 'a')), ['ann', 'bob', 'dan']);
  assert.deepEqual(who(asks('delete', 'secrets', 'c')), ['ann', 'bob']);
  assert.deepEqual(grantsOf(FOUND, asks('delete', 'secrets')).at(-1)?.names, ['a', 'b']);
});

test('subresources are other resources', () => {
  assert.deepEqual(who(asks('get', 'pods')), ['ann']);
  assert.deepEqual(who(asks('get', 'pods/exec')), ['ann', 'bob']);
  assert.deepEqual(who(asks('create', 'pods/exec')), ['ann', 'eve']);
  assert.equal(who(asks('delete', 'secrets', '', 'apps')).length, 1);
});
