// The user's rights: the rules of a namespace including cluster-wide ones, and single access reviews.

import { postJson } from './client';
import type { Resource } from './discovery';
import type { ResourceRule, SubjectAccessReviewStatus, SubjectRulesReviewStatus } from './kubernetes';

export interface Rules {
  rules: ResourceRule[];
  incomplete: boolean;
}

export async function rulesIn(namespace: string): Promise<Rules> {
  const body = { kind: 'SelfSubjectRulesReview', apiVersion: 'authorization.k8s.io/v1', spec: { namespace } };
  const answer = await postJson<{ status?: SubjectRulesReviewStatus }>(
    '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews',
    body,
  );
  return { rules: answer.status?.resourceRules ?? [], incomplete: answer.status?.incomplete ?? false };
}

export interface Question {
  verb: string;
  resource: Resource;
  subresource?: string;
  namespace: string;
  name?: string;
}

export async function mayI(question: Question): Promise<boolean> {
  const { verb, resource, subresource, namespace, name } = question;
  const body = {
    kind: 'SelfSubjectAccessReview',
    apiVersion: 'authorization.k8s.io/v1',
    spec: {
      resourceAttributes: {
        verb,
        group: resource.group,
        version: resource.version,
        resource: resource.plural,
        subresource,
        namespace: namespace === '' ? undefined : namespace,
        name,
      },
    },
  };
  const answer = await postJson<{ status?: SubjectAccessReviewStatus }>(
    '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
    body,
  );
  return answer.status?.allowed === true;
}

const covers = (patterns: string[] | undefined, value: string) =>
  patterns?.some((pattern) => pattern === '*' || pattern === value) === true;

/** Whether the rules let the user do this with all objects of a resource. */
export function allows(rules: Rules, verb: string, resource: Resource): boolean {
  return rules.rules.some(
    (rule) =>
      covers(rule.verbs, verb) &&
      covers(rule.apiGroups, resource.group) &&
      covers(rule.resources, resource.plural) &&
      (rule.resourceNames ?? []).length === 0,
  );
}
