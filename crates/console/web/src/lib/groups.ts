// The API groups of Kubernetes itself.

const BUILT_IN = [
  'admissionregistration',
  'apiextensions',
  'apiregistration',
  'authentication',
  'authorization',
  'certificates',
  'coordination',
  'discovery',
  'events',
  'flowcontrol.apiserver',
  'internal.apiserver',
  'migration',
  'networking',
  'node',
  'rbac.authorization',
  'resource',
  'scheduling',
  'storage',
  'storagemigration',
].map((name) => `${name}.k8s.io`);

/** Whether a group is one of Kubernetes itself, which no definition has. */
export function isBuiltIn(group: string): boolean {
  return !group.includes('.') || BUILT_IN.includes(group);
}
