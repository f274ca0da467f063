// The server as a child process of Node.js.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { KeelsonError, start } from 'keelson'

const PATIENCE = 30_000

function runs (pid) {
  try {
    const state = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1][0]
    return state !== 'Z' && state !== 'X'
  } catch {
    return false
  }
}

async function gone (pid) {
  const deadline = Date.now() + PATIENCE
  while (runs(pid)) {
    assert.ok(Date.now() < deadline, 'it runs on')
    await sleep(20)
  }
}

test('a server answers and leaves nothing behind', async () => {
  const server = await start()
  const namespaces = await server.request('GET', '/api/v1/namespaces')
  assert.ok(namespaces.items.some((it) => it.metadata.name === 'default'))
  assert.equal(await server.request('GET', '/readyz'), 'ok')
  const refused = server.request('GET', '/api/v1/namespaces/nosuch')
  await assert.rejects(refused, (error) => error instanceof KeelsonError && error.status === 404)
  await server.stop()
  await server.stop()
  assert.ok(!runs(server.pid))
  assert.ok(!existsSync(server.kubeconfig))
})

test('tests that share a server have namespaces of their own', async () => {
  const server = await start({ args: ['--controllers='] })
  const [one, other] = await Promise.all([server.namespace(), server.namespace()])
  assert.notEqual(one, other)
  const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'mine' } }
  await server.request('POST', `/api/v1/namespaces/${one}/configmaps`, map)
  assert.equal((await server.request('GET', `/api/v1/namespaces/${other}/configmaps`)).items.length, 0)
  // No controller empties it.
  await server.request('DELETE', `/api/v1/namespaces/${one}`)
  assert.equal((await server.request('GET', `/api/v1/namespaces/${one}`)).status.phase, 'Terminating')
  await server[Symbol.asyncDispose]()
})

test('a start that fails shows the log', async () => {
  await assert.rejects(start({ args: ['--nosuch-flag'] }), /nosuch-flag/)
  await assert.rejects(start({ binary: '/nonexistent/keelson' }), /ENOENT/)
})

test('a server ends with the process that started it', async () => {
  const code = "import { start } from 'keelson'; console.log((await start()).pid); setInterval(() => {}, 1000)"
  const cwd = new URL('..', import.meta.url)
  const parent = spawn(process.execPath, ['--input-type=module', '-e', code], { cwd, stdio: ['ignore', 'pipe', 'inherit'] })
  const pid = Number(await new Promise((resolve) => parent.stdout.once('data', resolve)))
  assert.ok(runs(pid))
  parent.kill('SIGKILL')
  await gone(pid)
})

test('a server that is not stopped does not keep its process from ending', async () => {
  const code = "import { start } from 'keelson'; console.log((await start()).pid)"
  const cwd = new URL('..', import.meta.url)
  const parent = spawn(process.execPath, ['--input-type=module', '-e', code], { cwd, stdio: ['ignore', 'pipe', 'inherit'] })
  const pid = Number(await new Promise((resolve) => parent.stdout.once('data', resolve)))
  await new Promise((resolve) => parent.once('exit', resolve))
  await gone(pid)
})

test('forks begin with the objects of their origin, and see no later writes', async () => {
  const prepared = await start()
  const map = (name) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } })
  const path = '/api/v1/namespaces/default/configmaps'
  const names = async (server) => (await server.request('GET', path)).items.map((it) => it.metadata.name)
  await prepared.request('POST', path, map('fixture'))
  const forks = await Promise.all([1, 2, 3].map(() => prepared.fork()))
  assert.equal(new Set([prepared, ...forks].map((server) => server.url)).size, 4)
  await Promise.all(forks.map((fork, at) => fork.request('POST', path, map(`of-${at}`))))
  await prepared.request('POST', path, map('later'))
  const grandchild = await forks[0].fork()
  await grandchild.request('DELETE', `${path}/fixture`)
  for (const [at, fork] of forks.entries()) assert.deepEqual((await names(fork)).sort(), ['fixture', `of-${at}`, 'kube-root-ca.crt'].sort())
  assert.deepEqual((await names(grandchild)).sort(), ['kube-root-ca.crt', 'of-0'])
  assert.ok(!(await names(prepared)).includes('of-0'))
  await forks[0].stop()
  await assert.rejects(forks[0].request('GET', path))
  assert.equal((await names(grandchild)).length, 2)
  await prepared.stop()
  await assert.rejects(grandchild.request('GET', path))
  await grandchild.stop()
})

test('the number of forks is limited', async () => {
  const prepared = await start({ args: ['--max-forks=1'] })
  const fork = await prepared.fork()
  await assert.rejects(prepared.fork(), /--max-forks/)
  await fork.stop()
  await (await prepared.fork()).stop()
  await prepared.stop()
  const without = await start({ args: ['--max-forks=0'] })
  await assert.rejects(without.fork(), /has no forks/)
  await without.stop()
})
