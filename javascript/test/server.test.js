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
